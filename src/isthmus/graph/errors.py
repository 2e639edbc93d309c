"""Exception classes that programs written for several versions of MLX can all catch."""


class AxisError(IndexError, ValueError):
    """An axis out of range. MLX raised ValueError for it in some versions and IndexError in others."""


class DtypeError(ValueError, RuntimeError):
    """A dtype that an op does not take. MLX raises RuntimeError from some functions and ValueError from their operators."""
