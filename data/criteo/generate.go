package criteo

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/gorun-spmd/gorun/internal/ints"
)

// values is how many values each category of a generated file can have; most
// lines have the first few of them.
var values = [Categorical]uint64{1500, 600, 40000, 15000, 300, 20, 8000, 600, 3, 12000, 5000, 30000, 3000, 25, 8000, 20000, 10, 4000, 2000,
	4, 25000, 18, 15, 10000, 60, 9000}

// Generate writes rows lines of a synthetic click log. The values of the categories
// follow power laws. Whether a line is a click depends on a hidden number of each value,
// on products of some of these numbers, and a little on the counts. So a model that knows
// the values does much better than one that sees the counts alone. The same seed gives
// the same file.
func Generate(w io.Writer, rows int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0x637269746574))
	var zipf [Categorical]*rand.Zipf
	for f, n := range values {
		zipf[f] = rand.NewZipf(rng, 1.05+0.02*float64(f%10), 2, n-1)
	}
	out := bufio.NewWriter(w)
	for range rows {
		logit, fields := -1.4, []byte(nil)
		for i := range Dense {
			fields = append(fields, '\t')
			z := rng.NormFloat64()
			if rng.Float64() < 0.1 {
				continue // missing
			}
			n := int(math.Exp(1.5+1.2*z)) - 1
			fields = fmt.Append(fields, n)
			logit += 0.12 * math.Cos(float64(i)) * z
		}
		var hidden [Categorical]float64
		for f := range Categorical {
			fields = append(fields, '\t')
			v := zipf[f].Uint64()
			if rng.Float64() < 0.03 {
				continue
			}
			code := mix(seed + uint64(f)<<32 + v)
			fields = fmt.Appendf(fields, "%08x", uint32(code))
			hidden[f] = float64(code>>40)/(1<<23) - 1 // in [-1, 1)
			logit += 0.55 * hidden[f]
		}
		for f := 0; f+1 < Categorical; f += 2 {
			logit += 0.9 * hidden[f] * hidden[f+1]
		}
		label := byte('0')
		if rng.Float64() < 1/(1+math.Exp(-logit)) {
			label = '1'
		}
		fields = append(fields, '\n')
		out.WriteByte(label)
		out.Write(fields)
	}
	return out.Flush()
}

// mix scrambles a number.
func mix(x uint64) uint64 { return ints.Mix(x + 0x9e3779b97f4a7c15) }
