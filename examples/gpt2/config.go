package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gorun-spmd/gorun/dtensor"
	"github.com/gorun-spmd/gorun/nn"
)

// A config is what config.json says of a model, in the words of either layout.
type config struct {
	gpt       bool // GPT-2's layout; else Llama's
	vocab     int
	positions int
	width     int
	layers    int
	tied      bool // the head is the token table
	block     nn.BlockConfig
	rope      nn.RopeConfig // Llama only
}

// readConfig reads config.json in the folder of a model. It refuses what it would compute
// in another way than Hugging Face's transformers.
func readConfig(dir string) (*config, error) {
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("gpt2: %s: %w", path, err)
	}
	return c, nil
}

func parseConfig(text []byte) (*config, error) {
	var kind struct {
		ModelType string `json:"model_type"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, err
	}
	switch kind.ModelType {
	case "gpt2":
		return parseGPT2(text)
	case "llama", "mistral", "qwen2", "qwen3":
		return parseLlama(text, kind.ModelType)
	}
	return nil, fmt.Errorf("model_type is %q; gpt2, llama, mistral, qwen2 and qwen3 are known", kind.ModelType)
}

func parseGPT2(text []byte) (*config, error) {
	f := struct {
		Vocab      int     `json:"vocab_size"`
		Positions  int     `json:"n_positions"`
		Width      int     `json:"n_embd"`
		Heads      int     `json:"n_head"`
		Layers     int     `json:"n_layer"`
		Inner      int     `json:"n_inner"`
		Eps        float64 `json:"layer_norm_epsilon"`
		Activation string  `json:"activation_function"`
		Tied       bool    `json:"tie_word_embeddings"`
	}{Eps: 1e-5, Activation: "gelu_new", Tied: true} // what a file may leave out
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	act := (*dtensor.Tensor).GeluTanh
	switch f.Activation {
	case "gelu_new", "gelu_pytorch_tanh":
	case "gelu":
		act = (*dtensor.Tensor).Gelu
	case "relu":
		act = (*dtensor.Tensor).Relu
	default:
		return nil, fmt.Errorf("activation_function is %q; gelu_new, gelu_pytorch_tanh, gelu and relu are known", f.Activation)
	}
	c := &config{gpt: true, vocab: f.Vocab, positions: f.Positions, width: f.Width, layers: f.Layers, tied: f.Tied,
		block: nn.BlockConfig{Width: f.Width, Heads: f.Heads, Hidden: f.Inner, Bias: true, LayerNorm: true, Eps: f.Eps, Activation: act,
			Names: nn.GPT2Names}}
	return c, c.check()
}

func parseLlama(text []byte, model string) (*config, error) {
	f := struct {
		Vocab     int     `json:"vocab_size"`
		Positions int     `json:"max_position_embeddings"`
		Width     int     `json:"hidden_size"`
		Heads     int     `json:"num_attention_heads"`
		KVHeads   int     `json:"num_key_value_heads"`
		HeadDim   int     `json:"head_dim"`
		Layers    int     `json:"num_hidden_layers"`
		Inner     int     `json:"intermediate_size"`
		Eps       float64 `json:"rms_norm_eps"`
		Theta     float64 `json:"rope_theta"`
		Act       string  `json:"hidden_act"`
		Tied      bool    `json:"tie_word_embeddings"`
		Biases    bool    `json:"attention_bias"`
		MLPBias   bool    `json:"mlp_bias"`
		Window    *int    `json:"sliding_window"`
		UseWindow *bool   `json:"use_sliding_window"`
		Scaling   *struct {
			Kind     string  `json:"rope_type"`
			Old      string  `json:"type"` // what rope_type was called
			Factor   float64 `json:"factor"`
			Low      float64 `json:"low_freq_factor"`
			High     float64 `json:"high_freq_factor"`
			Original int     `json:"original_max_position_embeddings"`
		} `json:"rope_scaling"`
	}{Eps: 1e-6, Theta: 10000, Act: "silu"}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if f.HeadDim == 0 {
		f.HeadDim = f.Width / max(f.Heads, 1)
	}
	c := &config{vocab: f.Vocab, positions: f.Positions, width: f.Width, layers: f.Layers, tied: f.Tied,
		block: nn.BlockConfig{Width: f.Width, Heads: f.Heads, KVHeads: f.KVHeads, HeadDim: f.HeadDim, Hidden: f.Inner, Gated: true,
			QKVBias: model == "qwen2", QKNorm: model == "qwen3", Eps: f.Eps, Names: nn.LlamaNames},
		rope: nn.RopeConfig{HeadDim: f.HeadDim, Positions: f.Positions, Theta: f.Theta}}
	switch {
	case f.Act != "silu":
		return nil, fmt.Errorf("hidden_act is %q; silu is known", f.Act)
	case f.Biases != f.MLPBias:
		return nil, fmt.Errorf("attention_bias is %v and mlp_bias %v; both or none are known", f.Biases, f.MLPBias)
	case f.Window != nil && *f.Window < f.Positions && (f.UseWindow == nil || *f.UseWindow):
		return nil, fmt.Errorf("sliding_window is %d; attention to all positions is known", *f.Window)
	}
	c.block.Bias = f.Biases
	if s := f.Scaling; s != nil {
		if s.Kind == "" {
			s.Kind = s.Old
		}
		switch s.Kind {
		case "default":
		case "linear":
			c.rope.Factor = s.Factor
		case "llama3":
			c.rope.Factor, c.rope.LowFreq, c.rope.HighFreq, c.rope.Original = s.Factor, s.Low, s.High, s.Original
		default:
			return nil, fmt.Errorf("rope_type is %q; default, linear and llama3 are known", s.Kind)
		}
	}
	return c, c.check()
}

func (c *config) check() error {
	if c.vocab < 1 || c.positions < 1 || c.width < 1 || c.layers < 1 || c.block.Heads < 1 {
		return fmt.Errorf("%d tokens, %d positions, %d layers of %d features and %d heads: all have to be given and positive",
			c.vocab, c.positions, c.layers, c.width, c.block.Heads)
	}
	return nil
}
