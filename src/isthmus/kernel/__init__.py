"""What one launch computes: scalar expressions (scalar), loops over them (loops), their meaning (interpret)."""
