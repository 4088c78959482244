package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-spmd/gorun/internal/forecast"
)

// A netText is the value of --net.
//
//	host:8,fabric:25us,12.5GB/s                 8 ranks on a host; between hosts 25 µs, and 12.5 GB/s of a host
//	host:8,rack:64,5us,25GB/s,fabric:25us,50GB/s   racks of 64 ranks, of which each host has 25 GB/s
//
// The first level is the host. What it does not say of latency and bandwidth is the machine's.
type netText string

// parse reads the levels of a job of size ranks. The first has zeros for what the text does not say.
func (text netText) parse(size int) (net forecast.Net, err error) {
	if text == "" {
		return forecast.Net{{Name: "host", Ranks: size}}, nil
	}
	for part := range strings.SplitSeq(string(text), ",") {
		if name, rest, ok := strings.Cut(part, ":"); ok {
			net, part = append(net, forecast.Level{Name: name}), rest
		}
		if len(net) == 0 {
			return nil, fmt.Errorf("%q belongs to no level; begin with host:, as in host:8,fabric:25us,12.5GB/s", part)
		}
		l := &net[len(net)-1]
		number, isRate := strings.CutSuffix(part, "/s")
		latency, bad := time.ParseDuration(part)
		ranks, noCount := strconv.Atoi(part)
		switch {
		case isRate:
			bytes, err := parseSize(number)
			if err != nil {
				return nil, err
			}
			l.Bandwidth = float64(bytes)
		case noCount == nil && ranks > 0:
			l.Ranks = ranks
		case bad == nil && latency >= 0:
			l.Latency = latency.Seconds()
		default:
			return nil, fmt.Errorf("%q of level %s is no number of ranks, no latency as 25us, and no bandwidth as 12.5GB/s", part, l.Name)
		}
	}
	last := &net[len(net)-1]
	if last.Ranks == 0 || len(net) == 1 && last.Ranks > size {
		last.Ranks = size
	}
	for i, l := range net {
		switch {
		case i > 0 && l.Bandwidth == 0:
			return nil, fmt.Errorf("level %s has no bandwidth; give that of the link of a %s, as 12.5GB/s", l.Name, net[i-1].Name)
		case l.Ranks == 0:
			return nil, fmt.Errorf("level %s does not say how many ranks lie in one %s; give the number, as %s:8", l.Name, l.Name, l.Name)
		case i > 0 && i < len(net)-1 && l.Ranks%net[i-1].Ranks != 0:
			return nil, fmt.Errorf("level %s has %d ranks, no multiple of the %d of %s", l.Name, l.Ranks, net[i-1].Ranks, net[i-1].Name)
		}
	}
	if last.Ranks < size {
		return nil, fmt.Errorf("the %d ranks do not fit the one %s of %d; give a level above it, as fabric:25us,12.5GB/s", size, last.Name,
			last.Ranks)
	}
	last.Ranks = size
	return net, nil
}

// filled returns the net with what it does not say of the host from the machine.
func filled(net forecast.Net, m *forecast.Machine) forecast.Net {
	if net[0].Latency == 0 {
		net[0].Latency = m.Host.Latency
	}
	if net[0].Bandwidth == 0 {
		net[0].Bandwidth = m.Host.Bandwidth
	}
	return net
}

// readMachine reads what gorun rates has printed, or somebody has written.
func readMachine(path string) (*forecast.Machine, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := new(forecast.Machine)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w; gorun -np 2 gorun rates prints a machine", path, err)
	}
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// RatesCommand is the argument with which gorun, as the ranks of a job, measures the machine.
const RatesCommand = "rates"

var errRates = errors.New("gorun rates measures as the ranks of a job: gorun -np 2 gorun rates")

// noMachine is the value of --machine with which no time is predicted.
const noMachine = "none"
