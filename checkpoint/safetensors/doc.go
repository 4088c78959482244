// Package safetensors reads and writes the headers of safetensors files, the
// format in which Hugging Face stores models. It converts between bytes and a Header; it
// opens no file and knows nothing of ranks.
//
// A file is
//
//	8 bytes     N, the size of the header, little-endian
//	N bytes     the header, a JSON object, which may end in spaces
//	the rest    the elements of all tensors, row-major, little-endian
//
// and the header maps each tensor's name to its type, shape and place in the rest:
//
//	{"__metadata__": {"format": "pt"},
//	 "head.weight": {"dtype": "F32", "shape": [512, 64], "data_offsets": [0, 131072]}}
//
// To write a file, call NewHeader, which places the tensors, and write Header.Encode and
// then the tensors' bytes in the order of Header.Tensors. To read one, call ReadHeader;
// any part of any tensor then is at Header.DataStart plus the tensor's Offset.
//
// # What is refused
//
// ReadHeader refuses a header that is larger than the file or MaxHeaderBytes, a name that
// appears twice, an unknown element type, a shape whose size overflows, offsets that do
// not fit the shape, overlap, leave a hole or reach beyond the file, and bytes after the
// last tensor. Its error is a *FormatError that names the byte. It allocates no more than a
// small multiple of the header's size, and nothing for the tensors.
//
// A model in several files comes with an index, model.safetensors.index.json,
// which ParseIndex reads.
//
// Source: github.com/huggingface/safetensors, README.md and
// safetensors/src/tensor.rs.
package safetensors
