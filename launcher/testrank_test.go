//go:build linux

package launcher

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-spmd/gorun/launcher/supervisor"
)

// testRank is a rank that does what its arguments say, in order. An argument
// "2:ARG" is for rank 2 alone.
//
//	ready         print "ready R PID" (every rank; the tests wait for it)
//	out=TEXT      print TEXT and a newline; \n, \r and \0 in TEXT stand for newline, carriage return and no newline at the end
//	err=TEXT      the same on standard error
//	lines=N,L     print N lines of L bytes: the rank's digit
//	catch         from here on print the name of each signal, and go on
//	stop          from here on stop at SIGTERM
//	ignore        from here on ignore signals
//	save=TEXT     print "waiting", wait for a signal, print TEXT, exit 0
//	fork          start a child, one in a session of its own, and one there whose first
//	              thread ends, that sleep and hold our pipes
//	headless      end this process's first thread, so that it looks like a zombie; others go on
//	cat           copy standard input to standard output
//	exit=N        exit with N
//	kill=N        send signal N to this process
//	panic         panic
//	wait=FILE     wait until FILE exists
//	touch=FILE    make FILE
//	sleep         until killed
func testRank(args []string) int {
	me := os.Getenv("GORUN_RANK")
	for i, arg := range args {
		if who, rest, ok := strings.Cut(arg, ":"); ok && strings.Trim(who, "0123456789") == "" {
			if who != me {
				continue
			}
			arg = rest
		}
		verb, value, _ := strings.Cut(arg, "=")
		n, _ := strconv.Atoi(value)
		switch verb {
		case "ready":
			fmt.Println("ready", me, os.Getpid())
		case "out":
			fmt.Print(unescape(value))
		case "err":
			fmt.Fprint(os.Stderr, unescape(value))
		case "lines":
			count, length, _ := strings.Cut(value, ",")
			n, _ := strconv.Atoi(count)
			l, _ := strconv.Atoi(length)
			for range n {
				fmt.Println(strings.Repeat(me, l))
			}
		case "catch", "ignore":
			c := make(chan os.Signal, 16)
			signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP,
				syscall.SIGCONT)
			go func() {
				for s := range c {
					if verb == "catch" {
						fmt.Println("rank", me, "got", supervisor.SignalName(s.(syscall.Signal)))
					}
				}
			}()
		case "stop":
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGTERM)
			go func() {
				for range c {
					time.Sleep(10 * time.Millisecond) // until after the SIGCONT that comes with it
					_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
					os.Exit(0)
				}
			}()
		case "save":
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			fmt.Println("waiting")
			<-c
			fmt.Println(value)
			return 0
		case "fork":
			fork(false, "ignore", "sleep")
			fork(true, "ignore", "sleep")
			fork(true, "headless", "ignore", "sleep")
		case "headless":
			goruntime.LockOSThread()
			if syscall.Gettid() != os.Getpid() { // a program begins on its first thread
				_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
			}
			go testRank(args[i+1:])
			_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
		case "cat":
			if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 9
			}
		case "exit":
			return n
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.Signal(n))
			time.Sleep(time.Minute)
		case "panic":
			panic("rank " + me + " panics")
		case "wait":
			for {
				if _, err := os.Stat(value); err == nil {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
		case "touch":
			_ = os.WriteFile(value, nil, 0o666)
		case "sleep":
			time.Sleep(time.Hour)
		default:
			fmt.Fprintf(os.Stderr, "testrank: %q?\n", arg)
			return 99
		}
	}
	return 0
}

func unescape(s string) string {
	s = strings.NewReplacer(`\n`, "\n", `\r`, "\r").Replace(s)
	if s, ok := strings.CutSuffix(s, `\0`); ok {
		return s
	}
	return s + "\n"
}

// fork starts a process that does what args say, and holds our standard streams.
func fork(session bool, args ...string) {
	cmd := exec.Command("testrank", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(98)
	}
}
