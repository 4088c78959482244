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
// A Block is a layer of GPT-2, of Llama, or between them; see BlockConfig. Attention takes
// a mask, the features of another sequence, or a KVCache through ForwardWith. Layers of
// signals and images are those of PyTorch, and embedding.Table is a Layer too.
//
//	Linear, RMSNorm, LayerNorm, MLP, Attention, Block    a transformer
//	Rope, KVCache, Dropout                               parts of attention and blocks
//	MoE                                                  a mixture of experts, instead of an MLP
//	NewConv1d, NewConvTranspose1d, BatchNorm, GroupNorm  signals, images and volumes
//	NewMaxPool1d, NewAvgPool1d, MaxUnpool, …             their pools
//	AdaptivePool, Upsample, GridSample, PReLU            for signals and images too
//	Unfold, Fold                                         their windows as rows, and back
//	NewLSTM, NewGRU, NewRNN                              recurrent networks
//	NewLinears, DotInteraction                           recommendation models: DLRM
//	Parameter                                            one tensor among the layers
//
// With LlamaNames, GPT2Names or BERTNames parameters have the names of Hugging Face's models, so
// checkpoint.Load and Export need rules for fused and transposed weights only.
//
// # Training and evaluation
//
// Nothing is switched: inside ValueAndGrad and Accumulate Dropout drops elements and
// BatchNorm takes the statistics of the batch, elsewhere they do not. The averages that a
// BatchNorm keeps are buffers, which checkpoints have beside parameters: see Buffered.
//
// # Tensor parallelism
//
// The placement of its weights alone says how a layer is divided over the mesh; the
// operators do the rest.
//
//	column-parallel  weight [O, I] S(0), bias [O] S(0)   x R        →  [..., O] S(last)
//	row-parallel     weight [O, I] S(1), bias [O] R      x S(last)  →  [..., O] P(sum)
//
// A column-parallel layer followed by a row-parallel one communicates once, to reduce
// the result: Attention and MLP are such pairs, so a block has two all-reduces forward
// and two backward. On the other axes of the mesh, such as the data axis, weights are
// replicated and activations keep their placement. With BlockConfig.Sequence the
// positions of the residual stream are divided over the tensor axis, and each all-reduce
// becomes an all-gather and a reduce-scatter.
//
// Shard divides the parameters of a layer over the data axis too: FSDP.
// BlockConfig.ContextAxis divides the positions of all activations, for long sequences,
// and MoEConfig.Axis the experts.
//
// # Types
//
// Parameters are float32 unless the Init says otherwise:
//
//	init.DType = tensor.BFloat16
//
// A layer computes in the type of its input, and its result has that type. It casts
// parameters of another type in the forward pass, and their gradients back. So there are
// two ways to train in bfloat16. With DType BFloat16 in the Init and in
// embedding.Config, parameters, activations and gradients are bfloat16, and package
// optim keeps float32 weights beside the parameters. Or keep float32 parameters and Cast
// the input of the first layer: then activations are bfloat16 and gradients float32.
//
// Each operator computes in float32 and rounds each element of its result once, and
// package loss returns float32.
//
// # Random numbers
//
// Parameters are drawn by global index: the same seed gives the same model on
// any mesh.
package nn
