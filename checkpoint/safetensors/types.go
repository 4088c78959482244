package safetensors

import "github.com/gorun-spmd/gorun/internal/dtype"

// Name returns the format's name of an element type, "" for an invalid one.
func Name(dt dtype.DType) string {
	switch dt {
	case dtype.Float32:
		return "F32"
	case dtype.Float64:
		return "F64"
	case dtype.Float16:
		return "F16"
	case dtype.BFloat16:
		return "BF16"
	case dtype.Int8:
		return "I8"
	case dtype.Int16:
		return "I16"
	case dtype.Int32:
		return "I32"
	case dtype.Int64:
		return "I64"
	case dtype.Uint8:
		return "U8"
	case dtype.Bool:
		return "BOOL"
	}
	return ""
}

// ParseName is the inverse of Name; ok is false for an unknown name.
func ParseName(name string) (dt dtype.DType, ok bool) {
	for dt = dtype.Float32; dt.Valid(); dt++ {
		if Name(dt) == name {
			return dt, true
		}
	}
	return dtype.Invalid, false
}
