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

	"github.com/zkrecipes/zkrecipes/internal/must"
)

// chapters are the tables, each in a file of its own.
var chapters = []chapter{lockChapter, lingerChapter, handoffChapter, drainChapter, rwlockChapter, queueChapter, doubleBarrierChapter, electionChapter}

func main() {
	var o options
	run := flag.String("run", "", "only work whose name matches this `regexp`, such as lock/ or queue/take")
	flag.StringVar(&o.servers, "servers", os.Getenv("ZKRECIPES_SERVERS"), "`host:port,...` of a ZooKeeper (default: one that this program starts)")
	flag.BoolVar(&o.embedded, "embedded", false, "do not look for a real ZooKeeper to start")
	flag.BoolVar(&o.standalone, "standalone", false, "leave the ensemble out")
	flag.IntVar(&o.ensemble, "members", 3, "how many servers the ensemble has")
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
	return must.Try(func() {
		for _, start := range places(o) {
			benchOn(ctx, out, o, start)
		}
	})
}

// benchOn starts a server, measures on it, and stops it.
func benchOn(ctx context.Context, out io.Writer, o options, start starter) {
	e := &env{server: new(server), options: o, short: o.time <= shortBudget}
	defer e.close()
	start(ctx, e.server)
	e.prepare(ctx)
	fmt.Fprint(out, e.heading())

	for _, c := range chapters {
		t := table{chapter: c}
		for _, w := range c.works(e) {
			if !o.run.MatchString(w.name) {
				continue
			}
			var rows []*row
			if err := must.Try(func() { rows = measure(ctx, e, w) }); err != nil {
				must.Fail("%s: %w", w.name, err)
			}
			t.groups = append(t.groups, group{w, rows})
		}

		if len(t.groups) > 0 {
			t.print(out)
		}
	}
}

// A starter starts a server. If it fails, by package must, the server must be stopped all the same.
type starter func(context.Context, *server)

// places returns starters of the servers that o selects, one after the other. By default that's
// Debian's ZooKeeper (standalone and as an ensemble), or else the embedded server.
func places(o options) []starter {
	_, err := os.Stat(filepath.Join(debianJars, "zookeeper.jar"))
	_, noJava := exec.LookPath("java")
	switch {
	case o.servers != "":
		return []starter{func(_ context.Context, s *server) { s.find(o.servers) }}
	case o.embedded || err != nil || noJava != nil:
		return []starter{startEmbedded}
	case o.standalone || o.ensemble < 2:
		return []starter{startStandalone}
	default:
		return []starter{startStandalone, func(ctx context.Context, s *server) { startEnsemble(ctx, s, o.ensemble) }}
	}
}
