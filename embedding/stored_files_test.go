package embedding

import (
	"time"

	"github.com/gorun-spmd/gorun/internal/rowstore"
)

// OnFiles puts the rows of a table with a Store on another file system, which a test makes.
func (c *Config) OnFiles(f rowstore.Files, patience time.Duration) { c.files, c.patience = f, patience }
