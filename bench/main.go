// Bench measures the cost of the recipes. It compares it with the least possible cost, and with
// other libraries:
//
//	go run -C bench .
//
// It prints one table per recipe. Without -servers it starts a ZooKeeper of its own: Debian's (in
// Java), or else the embedded server. See README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"syscall"
	"time"
)

// chapters are the tables, each in a file of its own.
var chapters = []chapter{lockChapter, lingerChapter, handoffChapter, drainChapter, rwlockChapter, queueChapter, doubleBarrierChapter, electionChapter}

type options struct {
	servers    string
	embedded   bool
	standalone bool
	members    int
	alone      bool
	run        *regexp.Regexp
	time       time.Duration
	latency    time.Duration
	svg        string
	profile    string
}

func main() {
	var o options
	run := flag.String("run", "", "only work whose name matches this `regexp`, such as lock/ or queue/take")
	flag.StringVar(&o.servers, "servers", os.Getenv("ZKRECIPES_SERVERS"), "`host:port,...` of a ZooKeeper (default: one that this program starts)")
	flag.BoolVar(&o.embedded, "embedded", false, "do not look for a real ZooKeeper to start")
	flag.BoolVar(&o.standalone, "standalone", false, "leave the ensemble out")
	flag.IntVar(&o.members, "members", 3, "how many servers the ensemble has")
	flag.BoolVar(&o.alone, "alone", false, "leave libraries of other languages out")
	flag.DurationVar(&o.time, "time", 2*time.Second, "how long to measure each contestant, in all; 50ms is the short mode")
	flag.DurationVar(&o.latency, "latency", 0, "make each round trip `that much` longer; leaves libraries of other languages out")
	flag.StringVar(&o.svg, "svg", "", "write a plot of each table, of the first server, to this `directory`")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this `file`; its samples are labelled by contestant")
	flag.Parse()
	var err error
	if o.run, err = regexp.Compile(*run); err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "bench: bad arguments", flag.Args(), err)
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if err := bench(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench measures everything that o selects, and prints each table as soon as it is complete.
func bench(ctx context.Context, out io.Writer, o options) (err error) {
	if o.time <= 0 {
		return fmt.Errorf("time %v", o.time)
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}

	for _, start := range places(o) {
		s, err := start(ctx)
		if err != nil {
			return err
		}
		if err := benchOn(ctx, out, o, s); err != nil {
			return err
		}
		o.svg = ""
	}

	return nil
}

// benchOn measures on a server, and stops it.
func benchOn(ctx context.Context, out io.Writer, o options, s *server) error {
	e, err := newEnv(ctx, o, s)
	if err != nil {
		return err
	}
	defer e.close()

	fmt.Fprint(out, e.heading())

	for _, c := range chapters {
		t := table{chapter: c}
		for _, w := range c.works(e) {
			if !o.run.MatchString(w.name) {
				continue
			}
			rows, err := measure(ctx, e, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			t.add(w, rows)
		}

		if len(t.groups) == 0 {
			continue
		}

		t.print(out)
		if o.svg != "" {
			if err := t.plot(o.svg, e.where); err != nil {
				return err
			}
		}
	}

	return nil
}
