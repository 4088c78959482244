// Command faulty is a job in which rank 1 does what its argument says, or all ranks do, while the
// others wait. None of these jobs can end well.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/message"
	"github.com/gorun-spmd/gorun/runtime"
)

func main() { runtime.Main(run) }

func run(ctx context.Context, world *comm.Comm) error {
	// Two communicators of all ranks. Calls on one do not meet those on the other.
	one, err := world.Split(ctx, 0, 0)
	if err != nil {
		return err
	}
	other, err := world.Split(ctx, 0, 0)
	if err != nil {
		return err
	}
	box, err := message.New(ctx, world)
	if err != nil {
		return err
	}
	for step := range 3 {
		runtime.SetStep(ctx, step)
		if err := comm.Barrier(ctx, world); err != nil {
			return err
		}
	}
	if world.Rank() == 0 {
		fmt.Fprintln(os.Stderr, "now")
	}
	if err := comm.Barrier(ctx, world); err != nil {
		return err
	}
	x, me, n := make([]float32, 4), world.Rank(), world.Size()
	next, before := (me+1)%n, (me+n-1)%n
	ill := me == 1
	switch fault := os.Args[1]; fault {
	case "mismatch":
		if ill {
			return comm.Broadcast(ctx, world, x, 0)
		}
	case "returns":
		if ill {
			return nil
		}
	case "exit 0", "exit 3":
		if ill {
			os.Exit(int(fault[5] - '0'))
		}
	case "killed":
		if ill {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	case "killed, others compute":
		if ill {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		time.Sleep(time.Hour)
	case "circle of collectives":
		if ill {
			one, other = other, one
		}
		return errors.Join(comm.Barrier(ctx, one), comm.Barrier(ctx, other))
	case "circle of receives":
		return errors.Join(comm.Recv(ctx, world, x, before), comm.Send(ctx, world, x, next))
	case "circle of sends":
		big := make([]float32, 1<<20)
		return errors.Join(comm.Send(ctx, world, big, next), comm.Recv(ctx, world, big, before))
	case "receive and collective":
		if ill {
			return comm.Recv(ctx, one, x, 0)
		}
	case "circle of messages":
		_, err := message.Recv(ctx, box, x, before, 7)
		return errors.Join(err, message.Send(ctx, box, x, next, 7))
	case "message and collective":
		if ill {
			_, err := message.Recv(ctx, box, x, 0, 7)
			return err
		}
	default:
		return fmt.Errorf("no fault %q", fault)
	}
	return comm.AllReduce(ctx, world, x, comm.Sum)
}
