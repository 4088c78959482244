//go:build gompi

package gompi

import (
	"testing"

	"github.com/gorun-spmd/gorun/comm/mpi/blocking/blockingtest"
)

var backend = blockingtest.Backend{Name: "gompi", Open: Open}

func TestMain(m *testing.M) { backend.Main(m) }

func TestBackend(t *testing.T) { backend.Run(t) }

func TestPrograms(t *testing.T) { backend.Programs(t, "gompi") }
