package layout

import "time"

// Costs is a simple model of what a step takes: a collective costs Latency, Peer
// for each other rank in its group, and the bytes that a rank receives divided by
// Bandwidth; every step but a relabel writes its result, at Copy.
// The zero Costs stands for DefaultCosts.
type Costs struct {
	Latency   time.Duration // of a collective, however small
	Peer      time.Duration // for each other rank in the group
	Bandwidth float64       // bytes a second that a rank receives; 0: the default
	Copy      float64       // bytes a second that a rank writes in its own memory; 0: the default
}

// DefaultCosts are those of a few ranks that share the memory of one host: a
// small collective takes some microseconds, and memory is copied at about
// 10 GB/s a rank when all copy at once. Only ratios matter for the choice of a plan,
// and it depends on them little: plans of fewer bytes and fewer collectives win
// under any costs.
func DefaultCosts() Costs {
	return Costs{Latency: 5 * time.Microsecond, Peer: 100 * time.Nanosecond, Bandwidth: 5e9, Copy: 10e9}
}

// filled returns c with its zero rates replaced by the default ones; the zero
// Costs becomes DefaultCosts.
func (c Costs) filled() Costs {
	d := DefaultCosts()
	if c == (Costs{}) {
		return d
	}
	if c.Bandwidth == 0 {
		c.Bandwidth = d.Bandwidth
	}
	if c.Copy == 0 {
		c.Copy = d.Copy
	}
	return c
}

// collective returns the cost of a collective in a group of n ranks of which none
// receives more than the given bytes.
func (c Costs) collective(n, bytes int) time.Duration {
	return c.Latency + time.Duration(n-1)*c.Peer + seconds(bytes, c.Bandwidth)
}

// local returns the cost of copying bytes within a rank.
func (c Costs) local(bytes int) time.Duration { return seconds(bytes, c.Copy) }

// seconds returns how long the bytes take at a rate, rounded up to a nanosecond.
func seconds(bytes int, rate float64) time.Duration {
	return time.Duration((float64(bytes)*1e9 + rate - 1) / rate)
}
