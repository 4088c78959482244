// Package nn has the layers of a transformer as plain structs over dtensors.
//
// A layer is its parameters: a constructor makes them, Forward computes with
// them and Params names them. There is no base class and nothing is registered:
// a model is a struct of layers, and its Params joins theirs.
//
//	init := nn.NewInit(mesh, seed)
//	block := nn.NewBlock(init, nn.BlockConfig{Width: C, Heads: H, Hidden: 4 * C, TensorAxis: "tp"})
//	...
//	h = block.Forward(h) // [B, T, C] S(0),R  →  [B, T, C] S(0),R
//
// # Tensor parallelism
//
// How a layer is spread over the mesh is the placement of its weights, nothing
// else; the operators do the rest.
//
//	column-parallel  weight [O, I] S(0), bias [O] S(0)   x R        →  [..., O] S(last)
//	row-parallel     weight [O, I] S(1), bias [O] R      x S(last)  →  [..., O] P(sum)
//
// A column-parallel layer followed by a row-parallel one communicates once, in
// the reduction of the result: Attention and MLP are such pairs, so a block has
// two all-reduces forward, and two backward. On every other axis of the mesh,
// that of the data for one, weights are replicated and activations stay as they
// come.
//
// # Random numbers
//
// Parameters are drawn by global index: the same seed gives the same model on
// any mesh.
package nn
