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
// # Types
//
// Parameters are float32 unless the Init says otherwise:
//
//	init.DType = tensor.BFloat16
//
// A layer takes and returns tensors of its parameters' type, and their gradients have it
// too. So a model is of bfloat16 throughout if its embedding.Config says so as well: each
// operator computes in float32 and rounds each element of its result once, package loss
// returns float32, and what package optim remembers is float32. For float32 parameters
// with bfloat16 activations Cast them in the forward pass.
//
// # Random numbers
//
// Parameters are drawn by global index: the same seed gives the same model on
// any mesh.
package nn
