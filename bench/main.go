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
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// chapters are the tables, each in a file of its own.
var chapters = []chapter{lockChapter, lingerChapter, handoffChapter, drainChapter, rwlockChapter, queueChapter, doubleBarrierChapter, electionChapter}

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
func bench(ctx context.Context, out io.Writer, o options) error {
	if o.time <= 0 {
		return fmt.Errorf("time %v", o.time)
	}
	for _, start := range places(o) {
		s, err := start(ctx)
		if err != nil {
			return err
		}
		if err := benchOn(ctx, out, o, s); err != nil {
			return err
		}
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

		if len(t.groups) > 0 {
			t.print(out)
		}
	}

	return nil
}

// places returns functions that start the servers that o selects, one after the other. By default
// that's Debian's ZooKeeper (standalone and as an ensemble), or else the embedded server.
func places(o options) []func(context.Context) (*server, error) {
	_, err := os.Stat(filepath.Join(debianJars, "zookeeper.jar"))
	_, noJava := exec.LookPath("java")
	switch {
	case o.servers != "":
		return []func(context.Context) (*server, error){func(context.Context) (*server, error) { return namedServers(o.servers), nil }}
	case o.embedded || err != nil || noJava != nil:
		return []func(context.Context) (*server, error){startEmbedded}
	case o.standalone || o.members < 2:
		return []func(context.Context) (*server, error){startStandalone}
	default:
		return []func(context.Context) (*server, error){startStandalone, func(ctx context.Context) (*server, error) {
			return startEnsemble(ctx, o.members)
		}}
	}
}
