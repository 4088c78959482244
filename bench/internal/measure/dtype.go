package measure

import (
	"flag"
	"fmt"

	"github.com/gorun-spmd/gorun/tensor"
)

// DTypeFlag adds the flag -dtype, float32 or bfloat16, for benchmarks that measure
// either. Main sets its value when it reads the flags.
func DTypeFlag() *tensor.DType {
	dt := tensor.Float32
	flag.Func("dtype", "type of the numbers: float32 or bfloat16 (default float32)", func(name string) error {
		for _, dt = range []tensor.DType{tensor.Float32, tensor.BFloat16} {
			if name == dt.String() {
				return nil
			}
		}
		return fmt.Errorf("want float32 or bfloat16")
	})
	return &dt
}
