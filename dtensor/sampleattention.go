package dtensor

import (
	"math"

	"github.com/gorun-spmd/gorun/tensor"
	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Attention is computed for one query or one key alone by the kernel that computes it for all. What a causal query does not see has
// weights of 0 there and is left out here.

// attention puts one query's row of y aside, with the keys and values that it sees, if its turn has come. s is the layout of y.
func (p *ProductSample) attention(op string, s *spec, q, k, v, y *tensor.Tensor, causal bool) {
	words, ok := p.chosen()
	if !ok || q.Numel() == 0 || k.Numel() == 0 || v.Numel() == 0 {
		return
	}
	piece := p.begin(op, s.local, s.offset, q, k, v)
	piece.Kernel = attends
	head, query, seen := oneQuery(q, k, v, causal, words)
	piece.Operands = []sampledTensor{rowsOf(q, head, query, 1), rowsOf(k, head, 0, seen), rowsOf(v, head, 0, seen)}
	piece.row(y, head, query)
}

// attentionGrad puts one row of a gradient aside if its turn has come: of q with the keys and values that the query sees; of k or v with
// the queries that see the key. operands are dy, q, k, v, y and lse; grads and s are those of q, k and v, and their layouts.
func (p *ProductSample) attentionGrad(operands, grads []*tensor.Tensor, s []*spec, causal bool) {
	words, ok := p.chosen()
	q, k, v := operands[1], operands[2], operands[3]
	if !ok || q.Numel() == 0 || k.Numel() == 0 || v.Numel() == 0 {
		return
	}
	out := int(words[3] % 3)
	piece := p.begin("", s[out].local, s[out].offset, operands[1+out])
	piece.Kernel, piece.Out = attendsGrad, out
	piece.Op += ", of " + []string{"q", "k", "v"}[out]
	head, at, seen := oneQuery(q, k, v, causal, words)
	query, queries, key, keys := at, 1, 0, seen
	if out > 0 {
		head, at, query = oneKey(q, k, v, causal, words)
		queries, key, keys = q.Dim(2)-query, at, 1
	}
	for i, t := range operands {
		if i == 2 || i == 3 {
			piece.Operands = append(piece.Operands, rowsOf(t, head, key, keys))
		} else {
			piece.Operands = append(piece.Operands, rowsOf(t, head, query, queries))
		}
	}
	if lse := piece.Operands[5]; out > 0 && causal && key > query { // the first queries do not see the key: their weights are to be 0
		copy(lse.Data, bytesOf(tensor.Full(q.Device(), lse.Type, math.Inf(1), key-query)))
	}
	piece.row(grads[out], head, at)
}

// oneQuery chooses a query and returns how many keys it sees: with causal it is one of those whose keys and values are in sampledBytes.
func oneQuery(q, k, v *tensor.Tensor, causal bool, words [4]uint32) (head, query, seen int) {
	queries, seen := q.Dim(2), k.Dim(2)
	if causal {
		queries = min(queries, max(1, sampledBytes/((k.Dim(3)+v.Dim(3))*k.DType().Size())))
	}
	query = int(words[2]) % queries
	if causal {
		seen = min(query+1, seen)
	}
	return int(words[1]) % (q.Dim(0) * q.Dim(1)), query, seen
}

// oneKey chooses a key and returns from which query on others are needed to compute its gradients: with causal it is one of those whose
// queries are in sampledBytes, or one of the last. Queries are added up tile by tile.
func oneKey(q, k, v *tensor.Tensor, causal bool, words [4]uint32) (head, key, query int) {
	const tile = kernel.AttentionTile
	first, keys := 0, k.Dim(2)
	if causal {
		keys = min(keys, q.Dim(2)) // those that a query sees
		room := sampledBytes / ((q.Dim(3) + 2*v.Dim(3)) * q.DType().Size())
		first = min((max(0, q.Dim(2)-room)+tile-1)/tile, (keys-1)/tile) * tile
	}
	key = first + int(words[2])%(keys-first)
	if causal {
		query = key / tile * tile
	}
	return int(words[1]) % (q.Dim(0) * q.Dim(1)), key, query
}

// rowsOf returns rows of a head of t, [B, H, T, D] or [B, H, T], as a head.
func rowsOf(t *tensor.Tensor, head, first, n int) sampledTensor {
	length := 1
	shape := []int{1, 1, n}
	if t.NDim() == 4 {
		length = t.Dim(3)
		shape = append(shape, length)
	}
	b := block(t, head*t.Dim(2)*length, t.Dim(2), length, first, n, false)
	b.Shape = shape
	return b
}

// row makes a row of a head of c, [B, H, T, D], the result.
func (piece *sampledPiece) row(c *tensor.Tensor, head, at int) {
	piece.First, piece.Width, piece.C.Shape = (head*c.Dim(2)+at)*c.Dim(3), c.Dim(3), []int{1, c.Dim(3)}
	piece.result(c)
}

// masked reports whether x, which was computed with all queries and keys, may be y, which was computed without those that a mask hides:
// they have weights of 0, which change the sign of a zero and make NaN of what is not finite.
func masked(x, y float64) bool { return x == y || math.IsNaN(x) }
