//go:build linux

package runtime

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/internal/fault"
	"github.com/gorun-spmd/gorun/internal/testenv"
	"github.com/gorun-spmd/gorun/launcher"
)

// TestMain makes this test binary gorun, its guardian, and rankprogram, whose
// first argument names one of programs.
func TestMain(m *testing.M) {
	testenv.Children()
	gorun := func() { os.Exit(launcher.Main(os.Args)) }
	testscript.Main(m, map[string]func(){
		"gorun":          gorun,
		"gorun-guardian": gorun,
		"rankprogram": func() {
			f, ok := programs()[os.Args[1]]
			if !ok {
				f, ok = hanging()[os.Args[1]]
			}
			if !ok {
				fmt.Fprintf(os.Stderr, "no program %q\n", os.Args[1])
				os.Exit(99)
			}
			if strings.HasPrefix(os.Args[1], "briefly ") {
				stopTime = time.Second
			}
			Main(f)
		},
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script"})
}

// programs are what the ranks of the tests run.
func programs() map[string]func(context.Context, *comm.Comm) error {
	return map[string]func(context.Context, *comm.Comm) error{
		"faulty":      faulty,
		"descriptors": openFiles,
		// sum prints a line of results from each rank.
		"sum": func(ctx context.Context, world *comm.Comm) error {
			x := []float64{float64(world.Rank()), 1}
			if err := comm.AllReduce(ctx, world, x, comm.Sum); err != nil {
				return err
			}
			local, localSize := Local(ctx)
			fmt.Printf("rank %d/%d local %d/%d attempt %d sum %v\n", world.Rank(), world.Size(), local, localSize, Attempt(ctx), x)
			return nil
		},
		// env prints what is left of the contract, and what a child of a rank is.
		"env": func(ctx context.Context, world *comm.Comm) error {
			for _, kv := range os.Environ() {
				if strings.HasPrefix(kv, "GORUN_") {
					fmt.Println("left:", kv)
				}
			}
			if world.Rank() > 0 {
				return nil
			}
			child := exec.Command("rankprogram", "files")
			child.Stdout, child.Stderr = os.Stdout, os.Stderr
			return child.Run()
		},
		// files prints the descriptors that are memory files.
		"files": func(_ context.Context, world *comm.Comm) error {
			fmt.Printf("child: rank %d of %d\n", world.Rank(), world.Size())
			names, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				return err
			}
			for _, n := range names {
				if to, _ := os.Readlink("/proc/self/fd/" + n.Name()); strings.Contains(to, "gorun") {
					fmt.Println("inherited:", to)
				}
			}
			return nil
		},
		"fail": failing(func() error { return errors.New("boom\nand more\n") }),
		"throw": failing(func() error {
			fault.Throw(errors.New("thrown"))
			return nil
		}),
		"panic": failing(func() error { panic("broken") }),
		"goexit": failing(func() error {
			goruntime.Goexit() // what t.Fatal does
			return nil
		}),
		// started has ranks start a call and return without a Wait for it: all of them an AllReduce, rank 1 alone, or each a
		// Recv. With heard it waits.
		"started": func(ctx context.Context, world *comm.Comm) error {
			x := make([]float32, 1<<20)
			call := comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: comm.Of(x), Src: comm.Of(x)}
			switch how := os.Args[2]; {
			case how == "recv":
				call = comm.Call{Kind: comm.RecvKind, Root: 1 - world.Rank(), Dst: comm.Of(x)}
			case how != "all" && world.Rank() != 1:
				return nil
			}
			p := world.Start(ctx, call)
			if os.Args[2] == "heard" {
				if err := p.Wait(); err == nil {
					return errors.New("the call has not failed")
				}
			}
			return nil
		},
		// unreceived has rank 0 send the last rank a message that it does not receive, after a while if its arguments say late, and
		// on a communicator of its own if they say apart.
		"unreceived": func(ctx context.Context, world *comm.Comm) error {
			c := world
			if slices.Contains(os.Args, "apart") {
				var err error
				if c, err = world.Split(ctx, 0, world.Rank()); err != nil {
					return err
				}
			}
			last := c.Size() - 1
			switch c.Rank() {
			case 0:
				if slices.Contains(os.Args, "late") {
					time.Sleep(time.Second)
				}
				for range 2 {
					if err := comm.Send(ctx, c, []int32{1, 2}, 1); err != nil {
						return err
					}
				}
				return comm.Send(ctx, c, []int32{3}, last)
			case 1:
				for range 2 {
					if err := comm.Recv(ctx, c, make([]int32, 2), 0); err != nil {
						return err
					}
				}
			}
			return nil
		},
		"help":   func(context.Context, *comm.Comm) error { return fmt.Errorf("options: %w", flag.ErrHelp) },
		"leave":  failing(func() error { return nil }),
		"killed": failing(func() error { return exec.Command("kill", "-9", fmt.Sprint(os.Getpid())).Run() }),
		// quit has ranks leave by os.Exit(0) after a call, or before any: all of them, or the one that the argument names.
		"quit": func(ctx context.Context, world *comm.Comm) error {
			if os.Args[2] == "before" {
				os.Exit(0)
			}
			if err := comm.Barrier(ctx, world); err != nil {
				return err
			}
			if os.Args[2] == "all" || os.Args[2] == fmt.Sprint(world.Rank()) {
				os.Exit(0)
			}
			if len(os.Args) > 3 {
				return comm.Barrier(ctx, world)
			}
			return nil
		},
		// differ has rank 1 make another call than the others.
		"differ": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 1 {
				return comm.Barrier(ctx, world)
			}
			return comm.AllReduce(ctx, world, make([]float32, 2), comm.Sum)
		},
		// differ late has rank 1 fail by itself after ranks have disagreed, and rank 0 return its error once gorun ends it.
		"differ late": func(ctx context.Context, world *comm.Comm) error {
			if world.Rank() == 1 {
				_ = comm.Barrier(ctx, world)
				return errors.New("disk full")
			}
			err := comm.AllReduce(ctx, world, make([]float32, 2), comm.Sum)
			<-ctx.Done()
			return err
		},
		// overlooked has all ranks go on after ranks have disagreed.
		"overlooked": func(ctx context.Context, world *comm.Comm) error {
			_ = comm.AllReduce(ctx, world, make([]float32, 1+world.Rank()), comm.Sum)
			return nil
		},
		// spin has rank 1 fail while the others neither communicate nor look at ctx.
		"spin": func(_ context.Context, world *comm.Comm) error {
			if world.Rank() == 1 {
				return errors.New("boom")
			}
			for {
				time.Sleep(time.Hour)
			}
		},
		// save works until it is interrupted, and then takes longer than a failed job allows.
		"save": func(ctx context.Context, world *comm.Comm) error {
			fmt.Println("ready")
			<-ctx.Done()
			time.Sleep(3 * leaveTime)
			fmt.Println("saved:", context.Cause(ctx))
			return ctx.Err()
		},
		// stops makes steps until the job is to stop, and then saves by a collective. At
		// the first step it prints its process.
		"stops": func(ctx context.Context, world *comm.Comm) error {
			x := make([]float64, 10)
			step := 0
			for ; !Stopping(ctx, world); step++ {
				if err := comm.AllReduce(ctx, world, x, comm.Sum); err != nil {
					return err
				}
				if step == 0 {
					fmt.Println("rank", world.Rank(), "is", os.Getpid())
					fmt.Println("ready")
				}
			}
			if err := comm.AllReduce(ctx, world, x, comm.Sum); err != nil {
				return fmt.Errorf("saving: %w", err)
			}
			fmt.Println("saved", step, context.Cause(ctx))
			return nil
		},
		// saves takes longer to save than ranks have until Stopping has told them to.
		"briefly saves": func(ctx context.Context, world *comm.Comm) error {
			fmt.Println("ready")
			for !Stopping(ctx, world) {
			}
			time.Sleep(2 * stopTime)
			fmt.Println("saved")
			return nil
		},
		// waits has the ranks wait for rank 0, which does not come.
		"briefly waits": func(ctx context.Context, world *comm.Comm) error {
			fmt.Println("ready")
			if world.Rank() == 0 {
				time.Sleep(time.Hour)
			}
			return comm.Barrier(ctx, world)
		},
		// leaves is stops as it should not be: each rank looks for itself.
		"leaves": func(ctx context.Context, world *comm.Comm) error {
			fmt.Println("ready")
			for ctx.Err() == nil || world.Rank() == 0 {
				if err := comm.AllReduce(ctx, world, make([]float64, 10), comm.Sum); err != nil {
					return err
				}
			}
			return comm.Barrier(ctx, world)
		},
		// savefail cannot save.
		"savefail": func(ctx context.Context, world *comm.Comm) error {
			fmt.Println("ready")
			<-ctx.Done()
			return errors.New("disk full")
		},
		// wait is interrupted in a collective that cannot complete.
		"wait": func(ctx context.Context, world *comm.Comm) error {
			fmt.Println("ready")
			if world.Rank() == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			return comm.Barrier(ctx, world)
		},
		"deaf": func(ctx context.Context, world *comm.Comm) error {
			fmt.Println("ready")
			time.Sleep(time.Hour)
			return nil
		},
		"saveandfail": func(ctx context.Context, world *comm.Comm) error {
			Saved(ctx)
			return errors.New("boom")
		},
		// again fails until the second restart, and saves if told to.
		"again": func(ctx context.Context, world *comm.Comm) error {
			if err := comm.Barrier(ctx, world); err != nil {
				return err
			}
			if world.Rank() == 1 {
				fmt.Println("attempt", Attempt(ctx), os.Args[2])
				if os.Args[2] == "saves" {
					Saved(ctx)
				}
				if Attempt(ctx) < 2 {
					return fmt.Errorf("boom %d", Attempt(ctx))
				}
			}
			return comm.Barrier(ctx, world)
		},
		// watched has rank 1 wait for rank 0, which tells its step after a call.
		"watched": func(ctx context.Context, world *comm.Comm) error {
			if err := comm.AllReduce(ctx, world, make([]float32, 1024), comm.Sum); err != nil {
				return err
			}
			if world.Rank() == 0 {
				SetStep(ctx, 42)
				fmt.Println("ready")
				<-ctx.Done()
			}
			return comm.Barrier(ctx, world)
		},
		// tracekill has rank 1 kill itself while the others wait for it.
		"tracekill": func(ctx context.Context, world *comm.Comm) error {
			SetStep(ctx, 8)
			if err := comm.AllReduce(ctx, world, make([]float32, 8), comm.Sum); err != nil {
				return err
			}
			if world.Rank() == 1 {
				time.Sleep(200 * time.Millisecond)
				return exec.Command("kill", "-9", fmt.Sprint(os.Getpid())).Run()
			}
			return comm.Barrier(ctx, world)
		},
		// tracefail has rank 1 end in one of several ways after a call of all.
		"tracefail": func(ctx context.Context, world *comm.Comm) error {
			if err := comm.AllReduce(ctx, world, make([]float32, 8), comm.Sum); err != nil {
				return err
			}
			switch {
			case world.Rank() == 1 && os.Args[2] == "panic":
				panic("boom")
			case world.Rank() == 1:
				return errors.New("boom")
			case os.Args[2] != "fail":
				time.Sleep(time.Hour)
			}
			return comm.Barrier(ctx, world)
		},
		// shapes makes calls of each shape, those that are to receive long after the others.
		"shapes": func(ctx context.Context, world *comm.Comm) error {
			SetStep(ctx, 3)
			late := func(is bool) {
				if is {
					time.Sleep(200 * time.Millisecond)
				}
			}
			last := world.Rank() == 2
			x, two := comm.Of(make([]float32, 6)), []float64{1, 2}
			if err := world.Do(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Sum, Dst: x, Src: x, Cause: "MatMul"}); err != nil {
				return err
			}
			late(!last)
			if err := comm.Broadcast(ctx, world, two, 2); err != nil {
				return err
			}
			late(last)
			late(last) // the others were late themselves
			if err := comm.Gather(ctx, world, make([]float64, 6), two, 2); err != nil {
				return err
			}
			late(last)
			var err error
			switch world.Rank() {
			case 0:
				err = comm.Send(ctx, world, two, 2)
			case 2:
				err = comm.Recv(ctx, world, two, 0)
			}
			if err != nil {
				return err
			}
			return world.Start(ctx, comm.Call{Kind: comm.AllReduceKind, Op: comm.Max, Dst: x, Src: x, Cause: "gradient"}).Wait()
		},
		// streams communicates without a pause, and never tells its step.
		"streams": func(ctx context.Context, world *comm.Comm) error {
			x := make([]float32, 1<<16)
			for n := 0; ctx.Err() == nil; n++ {
				if err := comm.AllReduce(ctx, world, x, comm.Max); err != nil {
					return err
				}
				if n == 0 {
					fmt.Println("ready")
				}
			}
			return ctx.Err()
		},
		"log": func(ctx context.Context, world *comm.Comm) error {
			log := Logger(ctx)
			log.Info().Msg("before")
			SetStep(ctx, 7)
			log.Info().Float64("loss", 0.5).Msg("trained")
			log.Debug().Msg("detail")
			return nil
		},
	}
}

// failing has rank 1, or the only one, do f while the others wait for it.
func failing(f func() error) func(context.Context, *comm.Comm) error {
	return func(ctx context.Context, world *comm.Comm) error {
		if world.Rank() == min(1, world.Size()-1) {
			if err := f(); err != nil || world.Size() > 1 {
				return err
			}
		}
		return comm.Barrier(ctx, world)
	}
}

func TestWithoutMainThereIsNoRank(t *testing.T) {
	ctx := context.Background()
	SetStep(ctx, 3)
	Logger(ctx).Error().Msg("nowhere")
	if rank, size := Local(ctx); rank != 0 || size != 1 || Attempt(ctx) != 0 {
		t.Errorf("Local = %d, %d and Attempt = %d, want 0, 1 and 0", rank, size, Attempt(ctx))
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	var b strings.Builder
	printError(&b, 3, errors.New("a\nb\n\n"))
	if got, want := b.String(), "rank 3: a; b\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNamesOfProgramsAreUsed(t *testing.T) {
	var scripts strings.Builder
	files, err := os.ReadDir("testdata/script")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile("testdata/script/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		scripts.Write(text)
	}
	for _, name := range []string{"faults_test.go", "ranks_test.go", "signal_test.go", "top_test.go", "trace_test.go", "tracempi_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		scripts.Write(text)
	}
	inside := []string{"files"} // started by another
	for name := range programs() {
		if !strings.Contains(scripts.String(), name) && !slices.Contains(inside, name) {
			t.Errorf("program %s is used by no test", name)
		}
	}
}
