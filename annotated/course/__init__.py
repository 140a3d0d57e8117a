"""What the notebooks use besides the module: exercises with their checks, and figures."""
