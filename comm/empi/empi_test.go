//go:build empi && mpi

package empi

import (
	"testing"

	"github.com/gorun-spmd/gorun/comm/mpi/blocking/blockingtest"
)

var backend = blockingtest.Backend{Name: "empi", Open: Open}

func TestMain(m *testing.M) { backend.Main(m) }

func TestBackend(t *testing.T) { backend.Run(t) }

func TestPrograms(t *testing.T) { backend.Programs(t, "empi,mpi") }
