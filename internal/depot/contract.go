package depot

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/gorun-spmd/gorun/internal/keepalive"
)

// Var is the variable that holds the Contract.
const Var = "GORUN_DEPOT"

// A Contract is what gorun tells the ranks of an elastic job on several hosts.
type Contract struct {
	ID        string // of the job; it names the socket on each host
	Secret    keepalive.Secret
	Gorun     string   // file of gorun, the same on every host
	Addresses []string // of gorun's host
	Port      int
	Attempt   int // 0 for the first start, then the number of restarts
}

// Encode returns the value of Var.
func (c *Contract) Encode() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // it has no field that cannot be written
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParseContract reads the value of Var.
func ParseContract(value string) (c Contract, err error) {
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && (c.ID == "" || c.Gorun == "" || c.Port < 1 || c.Attempt < 0) {
		err = fmt.Errorf("it is not whole")
	}
	if err != nil {
		return Contract{}, fmt.Errorf("depot: %s: %w; unset it, or start the program with gorun", Var, err)
	}
	return c, nil
}

// An Info says where the depot of a host can be reached.
type Info struct {
	ID        string // of the depot: different for each
	Host      string // its name
	Addresses []string
	Port      int
}
