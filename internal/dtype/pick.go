package dtype

// Float are the floating-point element types that are not narrow.
type Float interface{ float32 | float64 }

// Pick returns the float64 form of a function for Float64, else the float32 form.
func Pick[F any](dt DType, f32, f64 F) F {
	if dt == Float64 {
		return f64
	}
	return f32
}
