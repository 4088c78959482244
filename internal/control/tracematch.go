package control

// A TraceSide is one rank's side of a collective or of a message.
type TraceSide struct {
	Part, Record int // index of the rank's part, and of the record in it
	*TraceRecord
}

// MatchTrace returns the sides of each collective and of each message, in the order in which the
// first side of each stands in parts. It leaves out calls that failed or began before the time
// from. Sides of lost records are missing.
func MatchTrace(parts []*TracePart, from int64) (matches [][]TraceSide) {
	type key struct {
		comm     string
		number   uint64
		from, to int32 // the ranks of a message; -1 in a collective
	}
	index := map[key]int{} // in matches
	for i, p := range parts {
		comms := map[uint32]string{}
		for n := range p.Records {
			r := &p.Records[n]
			if !r.Shape.Call() || r.Number == 0 || r.Fails || r.Start < from {
				continue
			}
			name, ok := comms[r.Comm]
			if !ok {
				name = p.Text(r.Comm)
				comms[r.Comm] = name
			}
			k := key{name, r.Number, -1, -1}
			switch r.Shape {
			case TraceSend:
				k.from, k.to = int32(p.Rank), r.Peer
			case TraceRecv:
				k.from, k.to = r.Peer, int32(p.Rank)
			}
			at, ok := index[k]
			if !ok {
				at = len(matches)
				index[k] = at
				matches = append(matches, nil)
			}
			matches[at] = append(matches[at], TraceSide{i, n, r})
		}
	}
	return matches
}
