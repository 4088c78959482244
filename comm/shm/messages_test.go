package shm

import (
	"context"
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

var messageRounds = flag.Int("message.rounds", 20, "how many `rounds` of about 50 messages a rank TestRandomMessages has")

// roundsVariable tells a rank how many rounds of messages it has.
const roundsVariable = "SHM_TEST_ROUNDS"

// randomMessages is the suite's random schedule, as long as the flag says.
func randomMessages(ctx context.Context, world *comm.Comm) error {
	rounds, err := strconv.Atoi(os.Getenv(roundsVariable))
	if err != nil {
		return err
	}
	return commtest.RandomMessages(ctx, world, rounds)
}

func TestRandomMessages(t *testing.T) {
	t.Setenv(roundsVariable, strconv.Itoa(*messageRounds))
	for r, err := range processes(t, 4, "random messages") {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

func TestHugeMessage(t *testing.T) {
	commtest.NeedHuge(t)
	for r, err := range processes(t, 2, "huge message") {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
