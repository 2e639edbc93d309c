"""The text before every kernel: the only place that knows CUDA's dialect. No headers, so NVRTC needs nothing to be found.

Values in registers: bool, the integer types, float and double as C's; 16-bit floats as the float of the same value
(`round_h` and `round_b` bring a float to one); complex64 as `c64`. In memory bool is a byte and 16-bit floats are their
bits (`f16`, `b16`), and `get` and `put` go between the two.

Functions of `double` and `float` are NVRTC's own, within 2 ulp by NVIDIA's tables ("Mathematical Functions", CUDA C++
Programming Guide); those that are not (tan, sinh, asinh, acosh, atanh, pow, atan2 of float) are computed in double.
"""

PRELUDE = r"""
typedef long long i64; typedef unsigned long long u64; typedef unsigned int u32; typedef unsigned short u16; typedef unsigned char u8;
typedef signed char i8; typedef short i16; typedef int i32; typedef float f32; typedef double f64;
struct f16 { u16 bits; }; struct b16 { u16 bits; };
struct alignas(8) c64 { float re, im; };
#define INLINE static __device__ __forceinline__
#define INF __int_as_float(0x7f800000)

// A kernel may start before the one ahead of it in the stream has ended: the table is read first, data after `wait`.
// Parameters lie in the plan's table where the kernel is part of a graph, else they come with the launch.
template <int N> struct Values { i64 v[N]; };
#define PARAMETERS(N) const i64* table, const __grid_constant__ Values<N> values
#define FIND_PARAMETERS const i64* const p = table ? table : values.v;
#if __CUDA_ARCH__ >= 900
#define RELEASE FIND_PARAMETERS asm volatile("griddepcontrol.launch_dependents;");
#define AWAIT asm volatile("griddepcontrol.wait;" ::: "memory");
#else
#define RELEASE FIND_PARAMETERS
#define AWAIT
#endif
INLINE i64 slot(const i64* p) { i64 x; asm volatile("ld.b64 %0, [%1];" : "=l"(x) : "l"(p)); return x; }

template <class T> struct Unsigned; template <> struct Unsigned<i8> { typedef u8 t; }; template <> struct Unsigned<i16> { typedef u16 t; };
template <> struct Unsigned<i32> { typedef u32 t; }; template <> struct Unsigned<i64> { typedef u64 t; };
template <> struct Unsigned<u8> { typedef u8 t; }; template <> struct Unsigned<u16> { typedef u16 t; };
template <> struct Unsigned<u32> { typedef u32 t; }; template <> struct Unsigned<u64> { typedef u64 t; };
template <class T> struct Bits { static const int n = 8 * sizeof(T); static const bool is_signed = T(-1) < T(0); };
template <class T> struct Least { static __device__ T value() { return Bits<T>::is_signed ? T(typename Unsigned<T>::t(1) << (Bits<T>::n - 1)) : T(0); } };
template <class T> struct Most { static __device__ T value() { return T(~Least<T>::value()); } };
template <> struct Bits<c64> { static const int n = 64; static const bool is_signed = true; };

// -- 16-bit floats
INLINE float of_b(u16 x) { return __int_as_float(u32(x) << 16); }
INLINE float of_h(u16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
INLINE u16 to_h(float x) { u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
INLINE u16 to_b(float x) {
#if __CUDA_ARCH__ >= 800
    u16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y;
#else
    u32 u = __float_as_int(x);
    return x != x ? 0x7fff : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
#endif
}
INLINE float round_h(float x) { return of_h(to_h(x)); }
INLINE float round_b(float x) { return of_b(to_b(x)); }
INLINE float to_odd(double x) {   // so that rounding again gives what rounding once would: doi:10.1109/TC.2007.70819
    float y = __double2float_rz(x);
    return double(y) != x && x == x && fabsf(y) <= 3.4028235e38f ? __int_as_float(__float_as_int(y) | 1) : y;
}
INLINE float round_h(double x) { return round_h(to_odd(x)); }
INLINE float round_b(double x) { return round_b(to_odd(x)); }

template <class T> INLINE T get(T x) { return x; }
INLINE float get(f16 x) { return of_h(x.bits); }
INLINE float get(b16 x) { return of_b(x.bits); }
template <class T, class V> INLINE void put(T& to, V x) { to = T(x); }
INLINE void put(f16& to, float x) { to.bits = to_h(x); }
INLINE void put(b16& to, float x) { to.bits = __float_as_int(x) >> 16; }
INLINE void put(c64& to, c64 x) { to = x; }
template <class T> INLINE T zero() { return T(0); }
template <> __device__ __forceinline__ c64 zero<c64>() { return c64{0, 0}; }
template <> __device__ __forceinline__ f16 zero<f16>() { return f16{0}; }
template <> __device__ __forceinline__ b16 zero<b16>() { return b16{0}; }

// -- memory: V elements from `at` on, of which `count` exist; 16 bytes at a time where they are aligned
template <class T, int V> struct alignas(sizeof(T) * V) Pack { T v[V]; };
template <int V, int ALIGNED = 0, class T> INLINE void load(T (&out)[V], const T* at, int count) {
    constexpr int W = sizeof(T) * V > 16 ? 16 / sizeof(T) : V;
    if (count >= V && (ALIGNED || ((size_t)at & (sizeof(T) * W - 1)) == 0)) {
#pragma unroll
        for (int k = 0; k < V; k += W) {
            Pack<T, W> x = *(const Pack<T, W>*)(at + k);
#pragma unroll
            for (int j = 0; j < W; j++) out[k + j] = x.v[j];
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) { if (k < count) out[k] = at[k]; else out[k] = zero<T>(); }
    }
}
template <int V, int ALIGNED = 0, class T> INLINE void store(T* at, const T (&in)[V], int count) {
    constexpr int W = sizeof(T) * V > 16 ? 16 / sizeof(T) : V;
    if (count >= V && (ALIGNED || ((size_t)at & (sizeof(T) * W - 1)) == 0)) {
#pragma unroll
        for (int k = 0; k < V; k += W) {
            if (sizeof(T) * W == 16) {   // said outright: the compiler may take a pack of floats apart
                union { T from[W]; u32 to[4]; } u;
#pragma unroll
                for (int j = 0; j < W; j++) u.from[j] = in[k + j];
                asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" :: "l"(__cvta_generic_to_global(at + k)), "r"(u.to[0]), "r"(u.to[1]), "r"(u.to[2]), "r"(u.to[3]));
                continue;
            }
            Pack<T, W> x;
#pragma unroll
            for (int j = 0; j < W; j++) x.v[j] = in[k + j];
            *(Pack<T, W>*)(at + k) = x;
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) if (k < count) at[k] = in[k];
    }
}
// the same of 16-bit floats, two in a register
template <int V, int ALIGNED = 0> INLINE void load2(u32 (&out)[V / 2], const void* from, int count) {
    const u16* at = (const u16*)from;
    constexpr int W = V > 8 ? 8 : V;
    if (count >= V && (ALIGNED || ((size_t)at & (2 * W - 1)) == 0)) {
#pragma unroll
        for (int k = 0; k < V; k += W) {
            Pack<u32, W / 2> x = *(const Pack<u32, W / 2>*)(at + k);
#pragma unroll
            for (int j = 0; j < W / 2; j++) out[k / 2 + j] = x.v[j];
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; k += 2) out[k / 2] = (k < count ? u32(at[k]) : 0u) | (k + 1 < count ? u32(at[k + 1]) << 16 : 0u);
    }
}
template <int V, int ALIGNED = 0> INLINE void store2(void* to, const u32 (&in)[V / 2], int count) {
    u16* at = (u16*)to;
    constexpr int W = V > 8 ? 8 : V;
    if (count >= V && (ALIGNED || ((size_t)at & (2 * W - 1)) == 0)) {
#pragma unroll
        for (int k = 0; k < V; k += W) {
            Pack<u32, W / 2> x;
#pragma unroll
            for (int j = 0; j < W / 2; j++) x.v[j] = in[k / 2 + j];
            *(Pack<u32, W / 2>*)(at + k) = x;
        }
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) if (k < count) at[k] = u16(in[k / 2] >> (k % 2 * 16));
    }
}
INLINE float lo_b(u32 x) { return __int_as_float(x << 16); }
INLINE float hi_b(u32 x) { return __int_as_float(x & 0xffff0000u); }
INLINE float lo_h(u32 x) { return of_h(u16(x)); }
INLINE float hi_h(u32 x) { return of_h(u16(x >> 16)); }
INLINE u32 pair_b(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
    u32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo)); return y;
#else
    return u32(to_b(lo)) | u32(to_b(hi)) << 16;
#endif
}
INLINE u32 pair_h(float lo, float hi) {
#if __CUDA_ARCH__ >= 800
    u32 y; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo)); return y;
#else
    return u32(to_h(lo)) | u32(to_h(hi)) << 16;
#endif
}
INLINE void put2_b(u32& to, int hi, float x) { to = hi ? (to & 0xffffu) | (__float_as_int(x) & 0xffff0000u) : u32(__float_as_int(x)) >> 16; }
INLINE void put2_h(u32& to, int hi, float x) { to = hi ? (to & 0xffffu) | u32(to_h(x)) << 16 : u32(to_h(x)); }
// sums and products of pairs, rounded once: the same bits as in float32, rounded
#define PAIRS(name, text) INLINE u32 name(u32 a, u32 b) { u32 y; asm(text : "=r"(y) : "r"(a), "r"(b)); return y; }
PAIRS(add_h2, "add.rn.f16x2 %0, %1, %2;") PAIRS(sub_h2, "sub.rn.f16x2 %0, %1, %2;") PAIRS(mul_h2, "mul.rn.f16x2 %0, %1, %2;")
#if __CUDA_ARCH__ >= 900
PAIRS(add_b2, "add.rn.bf16x2 %0, %1, %2;") PAIRS(sub_b2, "sub.rn.bf16x2 %0, %1, %2;") PAIRS(mul_b2, "mul.rn.bf16x2 %0, %1, %2;")
#elif __CUDA_ARCH__ >= 800
INLINE u32 fma_b2(u32 a, u32 b, u32 c) { u32 y; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c)); return y; }
INLINE u32 add_b2(u32 a, u32 b) { return fma_b2(a, 0x3f803f80u, b); }
INLINE u32 sub_b2(u32 a, u32 b) { return fma_b2(b, 0xbf80bf80u, a); }
INLINE u32 mul_b2(u32 a, u32 b) { return fma_b2(a, b, 0x80008000u); }
#else
INLINE u32 add_b2(u32 a, u32 b) { return pair_b(lo_b(a) + lo_b(b), hi_b(a) + hi_b(b)); }
INLINE u32 sub_b2(u32 a, u32 b) { return pair_b(lo_b(a) - lo_b(b), hi_b(a) - hi_b(b)); }
INLINE u32 mul_b2(u32 a, u32 b) { return pair_b(lo_b(a) * lo_b(b), hi_b(a) * hi_b(b)); }
#endif
INLINE u64 quotient(u64 a, u64 b) { return ((a | b) >> 32) == 0 ? u64(u32(a) / u32(b)) : a / b; }

// -- integers
template <class T> INLINE T add_i(T a, T b) { typedef typename Unsigned<T>::t U; return T(U(U(a) + U(b))); }
template <class T> INLINE T sub_i(T a, T b) { typedef typename Unsigned<T>::t U; return T(U(U(a) - U(b))); }
template <class T> INLINE T mul_i(T a, T b) { return T(u64(a) * u64(b)); }
template <> __device__ __forceinline__ i32 mul_i<i32>(i32 a, i32 b) { return i32(u32(a) * u32(b)); }
template <> __device__ __forceinline__ u32 mul_i<u32>(u32 a, u32 b) { return a * b; }
template <class T> INLINE T neg_i(T a) { typedef typename Unsigned<T>::t U; return T(U(U(0) - U(a))); }
template <class T> INLINE T abs_i(T a) { return a < T(0) ? neg_i(a) : a; }
template <class T> INLINE T min_i(T a, T b) { return a < b ? a : b; }
template <class T> INLINE T max_i(T a, T b) { return a < b ? b : a; }
template <class T> INLINE T div_i(T a, T b) {
    if (b == T(0)) return T(0);
    if (Bits<T>::is_signed && b == T(-1)) return neg_i(a);
    T q = T(a / b);
    return (a % b != T(0)) && ((a < T(0)) != (b < T(0))) ? T(q - T(1)) : q;
}
template <class T> INLINE T mod_i(T a, T b) {
    if (b == T(0)) return a;
    if (Bits<T>::is_signed && b == T(-1)) return T(0);
    T r = T(a % b);
    return r != T(0) && ((r < T(0)) != (b < T(0))) ? T(r + b) : r;
}
template <class T> INLINE T pow_i(T a, T b) {
    if (b < T(0)) return T(0);
    T r = T(1);
    while (b != T(0)) {
        if (b & T(1)) r = mul_i(r, a);
        a = mul_i(a, a);
        b = T(typename Unsigned<T>::t(b) >> 1);
    }
    return r;
}
template <class T> INLINE T shl_i(T a, T b) {
    typedef typename Unsigned<T>::t U;
    return U(b) >= U(Bits<T>::n) ? T(0) : T(U(U(a) << U(b)));
}
template <class T> INLINE T shr_i(T a, T b) {
    typedef typename Unsigned<T>::t U;
    return U(b) >= U(Bits<T>::n) ? (a < T(0) ? T(-1) : T(0)) : T(a >> b);
}
INLINE bool min_i(bool a, bool b) { return a && b; }
INLINE bool max_i(bool a, bool b) { return a || b; }

// -- floats; NaN is never lost
INLINE float ex2_s(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float lg2_s(float x) { float y; asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float rcp_s(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
template <class T> INLINE T min_f(T a, T b) { return a < b || a != a ? a : b; }
template <class T> INLINE T max_f(T a, T b) { return a > b || a != a ? a : b; }
#if __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ float min_f<float>(float a, float b) { float y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
template <> __device__ __forceinline__ float max_f<float>(float a, float b) { float y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
#endif
template <class T, class F> INLINE T to_int(F x) {
    const F top = F(2) * F(u64(1) << (Bits<T>::n - 1 - (Bits<T>::is_signed ? 1 : 0)));
    if (x != x) return T(0);
    if (x >= top) return Most<T>::value();
    if (Bits<T>::is_signed ? x < -top : x <= F(0)) return Least<T>::value();
    return T(x);
}
template <class To, class From> INLINE To same_bits(From x) { union { From a; To b; } u; u.a = x; return u.b; }
// a / b of many a: the quotient by the reciprocal, and one step that makes it exact (Markstein 1990, doi:10.1147/rd.341.0111)
struct Divisor { float b, r; u32 span; };   // a span of |a| from 2^-60 on, for which that is so
INLINE Divisor divisor(float b) {
    u32 bits = __float_as_int(b), exponent = bits >> 23 & 0xff;
    return Divisor{b, 1.0f / b, exponent > 87 && exponent < 167 && (bits & 0x7fffff) != 0x7fffff ? 0x78000001u : 0u};
}
static __device__ __noinline__ float quotient_f(float a, float b) { return a / b; }   // rare, and long
INLINE float div_by(float a, Divisor d) {
    float q = a * d.r;
    float x = __fmaf_rn(__fmaf_rn(-q, d.b, a), d.r, q);
    if (u32(__float_as_int(a) << 1) - 0x43000000u >= d.span) x = quotient_f(a, d.b);
    return x;
}
INLINE float erf_f(float x) {   // below 0.8 a polynomial; above 1 - erfc, whose last place counts little: within 2 ulp
    float a = fabsf(x), z = x * x;
    float p = __fmaf_rn(z, -1.12693051e-05f, 0.000116916883f);
    p = __fmaf_rn(z, p, -0.000852898112f);
    p = __fmaf_rn(z, p, 0.00522340043f);
    p = __fmaf_rn(z, p, -0.0268660765f);
    p = __fmaf_rn(z, p, 0.112837911f);
    p = __fmaf_rn(z, p, -0.376126379f);
    p = __fmaf_rn(z, p, 0.128379166f);
    p = __fmaf_rn(p, x, x);
    float t = rcp_s(__fmaf_rn(a, 0.5f, 1.0f));
    float q = __fmaf_rn(t, -0.0279759727f, -0.122061215f);
    q = __fmaf_rn(t, q, 0.462180287f);
    q = __fmaf_rn(t, q, 0.0836223364f);
    q = __fmaf_rn(t, q, 0.326676846f);
    q = __fmaf_rn(t, q, 0.277277946f) * t;
    q = __fmaf_rn(-q, ex2_s(z * -1.44269504f), 1.0f);
    return x != x ? x : a < 0.8f ? p : copysignf(a > 4.0f ? 1.0f : q, x);
}
INLINE double erf_f(double x) { return erf(x); }
INLINE float sigmoid_f(float x) { float e = expf(-fabsf(x)); return (x < 0.0f ? e : 1.0f) / (1.0f + e); }
INLINE double sigmoid_f(double x) { double e = exp(-fabs(x)); return (x < 0.0 ? e : 1.0) / (1.0 + e); }
#define IN_DOUBLE(name, function) INLINE float name(float x) { return float(function(double(x))); } INLINE double name(double x) { return function(x); }
IN_DOUBLE(tan_f, tan) IN_DOUBLE(sinh_f, sinh) IN_DOUBLE(asinh_f, asinh) IN_DOUBLE(acosh_f, acosh) IN_DOUBLE(atanh_f, atanh)
INLINE float pow_f(float a, float b) { return float(pow(double(a), double(b))); }
INLINE double pow_f(double a, double b) { return pow(a, b); }
INLINE float atan2_f(float a, float b) { return float(atan2(double(a), double(b))); }
INLINE double atan2_f(double a, double b) { return atan2(a, b); }

// -- short forms, for results that are rounded to 16 bits at once (a relative error of 2^-20 where nothing else is said)
INLINE float ex2_full(float x) { float y; asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float exp_s(float x) { return ex2_full(x * 1.44269504f); }   // 2^-17, as the product is rounded at up to 128
INLINE float sigmoid_s(float x) { float e = exp_s(-fabsf(x)); float q = rcp_s(1.0f + e); return x < 0.0f ? e * q : x != x ? x : q; }
INLINE float div_s(float a, float b) { float y; asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
// Of bfloat16 a quotient is never near the middle of two neighbours, so 2 ulp of float32 give the exact rounding.
INLINE float tanh_b(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
INLINE float erf_b(float x) {   // 2^-11; from 2.5 on it is 1 in bfloat16
    float a = fminf(fabsf(x), 2.5f), z = a * a;
    float p = __fmaf_rn(z, 1.00363565e-05f, -0.00027427575f);
    p = __fmaf_rn(z, p, 0.00327748968f);
    p = __fmaf_rn(z, p, -0.0230506547f);
    p = __fmaf_rn(z, p, 0.108968906f);
    p = __fmaf_rn(z, p, -0.374547094f);
    p = __fmaf_rn(z, p, 1.12826383f) * a;
    return x != x ? x : copysignf(fminf(p, 1.0f), x);
}
INLINE float tanh_s(float x) {
    float a = fabsf(x), z = x * x;
    float q = 1.0f - 2.0f * rcp_s(1.0f + ex2_s(a * 2.88539004f));
    float p = __fmaf_rn(z, 0.0179163682f, -0.0532956715f);   // fitted on z < 0.2
    p = __fmaf_rn(z, p, 0.133285503f);
    p = __fmaf_rn(z, p, -0.333332129f);
    p = __fmaf_rn(x * z, p, x);
    return x != x ? x : a < 0.45f ? p : copysignf(a > 12.0f ? 1.0f : q, x);
}
INLINE float erf_s(float x) {
    float a = fabsf(x), z = x * x;
    float p = __fmaf_rn(z, -0.000674720794f, 0.00511401861f);  // fitted on z < 0.56
    p = __fmaf_rn(z, p, -0.0268344619f);
    p = __fmaf_rn(z, p, 0.112833733f);
    p = __fmaf_rn(z, p, -0.376126185f);
    p = __fmaf_rn(z, p, 1.12837917f) * x;
    float t = rcp_s(__fmaf_rn(a, 0.3275911f, 1.0f));         // Abramowitz and Stegun 7.1.26, 1.5e-7 absolute
    float q = __fmaf_rn(t, 1.061405429f, -1.453152027f);
    q = __fmaf_rn(t, q, 1.421413741f);
    q = __fmaf_rn(t, q, -0.284496736f);
    q = __fmaf_rn(t, q, 0.254829592f) * t;
    q = 1.0f - q * ex2_s(z * -1.44269504f);
    return x != x ? x : a < 0.7f ? p : copysignf(a > 4.0f ? 1.0f : q, x);
}

// -- threads
#if __CUDA_ARCH__ >= 900
INLINE void cluster_sync() { asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory"); }
template <class T> INLINE T of_block(const T* shared, u32 rank) {   // a value in the shared memory of another block of the cluster
    u32 at = u32(__cvta_generic_to_shared(shared)), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    if constexpr (sizeof(T) == 8) {
        u64 y; asm volatile("ld.shared::cluster.b64 %0, [%1];" : "=l"(y) : "r"(there) : "memory"); return same_bits<T>(y);
    } else if constexpr (sizeof(T) == 4) {
        u32 y; asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(y) : "r"(there) : "memory"); return same_bits<T>(y);
    } else if constexpr (sizeof(T) == 2) {
        u16 y; asm volatile("ld.shared::cluster.b16 %0, [%1];" : "=h"(y) : "r"(there) : "memory"); return same_bits<T>(y);
    } else {
        u32 y; asm volatile("ld.shared::cluster.u8 %0, [%1];" : "=r"(y) : "r"(there) : "memory"); return T(u8(y));
    }
}
#endif
template <class T> INLINE T turn(T x, int by) {
    if constexpr (sizeof(T) == 8) {
        u64 u = same_bits<u64>(x);
        u32 lo = __shfl_xor_sync(0xffffffffu, u32(u), by), hi = __shfl_xor_sync(0xffffffffu, u32(u >> 32), by);
        return same_bits<T>(u64(hi) << 32 | lo);
    } else if constexpr (sizeof(T) == 4) {
        return same_bits<T>(u32(__shfl_xor_sync(0xffffffffu, same_bits<u32>(x), by)));
    } else if constexpr (sizeof(T) == 2) {
        return same_bits<T>(u16(__shfl_xor_sync(0xffffffffu, u32(same_bits<u16>(x)), by)));
    } else {
        return T(u8(__shfl_xor_sync(0xffffffffu, u32(u8(x)), by)));
    }
}
"""
