//go:build !linux

package meta

import "github.com/gorun-spmd/gorun/internal/mem"

// addresses is an Allocator of pages that the kernel gives when they are touched.
type addresses struct{ mem.System }
