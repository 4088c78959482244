package nn_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/internal/meshtest"
	"github.com/gorun-spmd/gorun/nn"
)

// What a layer cannot do is refused where it is made, and not where it is used first.
func TestConstructorsRefuse(t *testing.T) {
	meshtest.On(t, []int{1}, func(ctx context.Context, m *dtensor.Mesh) error {
		init := nn.NewInit(m, 1)
		for want, f := range map[string]func(){
			"NewBlock, Dropout: P is 1.5; give one from 0 to 1": func() {
				nn.NewBlock(init, nn.BlockConfig{Width: 8, Heads: 2, Dropout: 1.5})
			},
			"NewAttention, Dropout: P is -1;": func() { nn.NewAttention(init, nn.AttentionConfig{Width: 8, Heads: 2, Dropout: -1}) },
			"NewLSTM, Dropout: P is 2;":       func() { nn.NewLSTM(init, nn.RNNConfig{In: 2, Hidden: 2, Dropout: 2}) },
			"NewBlock: Sequence without a TensorAxis": func() {
				nn.NewBlock(init, nn.BlockConfig{Width: 8, Heads: 2, Sequence: true})
			},
		} {
			if err := dtensor.Try(ctx, m, f); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %v, want %q in it", err, want)
			}
		}
		return nil
	})
}
