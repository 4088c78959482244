package dtensor

import "cmp"

// keyStream is the first stream of the keys that NextKey counts. Streams that programs
// and nn.Init choose are below.
const keyStream = 1 << 48

// NextKey returns a Key that no call before has returned: for Dropout, whose every use
// wants one of its own. The rank counts them over all its meshes, so ranks that make
// the same calls get the same keys. A loop that resumes calls StartKeys.
func (m *Mesh) NextKey(seed uint64) Key {
	m.eng.keys++
	return Key{Seed: seed, Stream: keyStream + m.eng.keys}
}

// StartKeys lets NextKey go on from the keys of a step: each step has 2³² of its own.
// A program that calls it at the start of each step draws the same numbers after a
// resume as it would have drawn without.
func (m *Mesh) StartKeys(step int) {
	m.eng.keys = uint64(step) << 32
	n := len(m.eng.noted)
	m.eng.noted, m.eng.isNoted = make([]Noted, 0, n), make(map[Noted]bool, n)
}

// Noted is what NoteState was told.
type Noted struct {
	Op    string
	State *Tensor
}

// NoteState says that op, such as a layer, changes a tensor while a model trains that is no parameter, as nn.BatchNorm does its
// running averages, and an optim.EMA its averages of weights. Package train refuses to keep checkpoints without it. See NotedState.
func (m *Mesh) NoteState(op string, state *Tensor) {
	if n := (Noted{op, state}); m.eng.isNoted != nil && !m.eng.isNoted[n] {
		m.eng.noted, m.eng.isNoted[n] = append(m.eng.noted, n), true
	}
}

// NotedState returns what NoteState was told since the last StartKeys, of all meshes of this rank, each tensor once. Before
// the first StartKeys nothing is noted.
func (m *Mesh) NotedState() []Noted { return m.eng.noted }

// NoteLossScale says that the loss of the ValueAndGrad in progress is multiplied by a factor, which is to be taken out of the
// gradients before a step: see optim.Scaler.
func (m *Mesh) NoteLossScale(factor float64) { m.eng.scaled = factor }

// LossScale returns what NoteLossScale was given in the ValueAndGrad in progress, 1 if nothing. Whoever changes a parameter in the
// backward pass has a gradient with this factor.
func (m *Mesh) LossScale() float64 { return cmp.Or(m.eng.scaled, 1) }

// Training reports whether a ValueAndGrad or Accumulate is running its function. It
// is where nn.Dropout drops elements and nn.BatchNorm takes the statistics of the batch.
func (m *Mesh) Training() bool {
	return m.eng.tape != nil && !m.eng.tape.untrained || m.eng.run != 0
}
