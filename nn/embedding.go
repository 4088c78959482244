package nn

import "github.com/gorun-spmd/gorun/embedding"

// NewEmbedding makes an embedding table whose Key and DType come from init, as those of
// other parameters do: no two tables begin with the same rows. Those in c are ignored.
//
//	tokens := nn.NewEmbedding(init, embedding.Config{Rows: V, Dim: C, Layout: embedding.RowWise("tp"), Std: 0.02})
func NewEmbedding(init *Init, c embedding.Config) *embedding.Table {
	c.Key, c.DType = init.key(), init.dtype()
	return embedding.NewTable(init.mesh, c)
}
