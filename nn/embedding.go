package nn

import "github.com/gorun-spmd/gorun/embedding"

// NewEmbedding makes an embedding table as the other parameters of init are made: c's Key and
// DType are replaced by those of init, so that no two tables begin with the same rows.
//
//	tokens := nn.NewEmbedding(init, embedding.Config{Rows: V, Dim: C, Layout: embedding.RowWise("tp"), Std: 0.02})
func NewEmbedding(init *Init, c embedding.Config) *embedding.Table {
	c.Key, c.DType = init.key(), init.dtype()
	return embedding.NewTable(init.mesh, c)
}
