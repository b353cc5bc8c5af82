// Nemesis runs processes of every recipe against a real ensemble. Meanwhile it breaks the ensemble,
// the network and the processes. Then it checks the histories of all processes together.
//
//	go run ./internal/real/nemesis -for 30m -members 5       an ensemble of five, in containers
//	go run ./internal/real/nemesis -embedded -for 1m         the embedded server: needs Go alone
//	go run ./internal/real/nemesis -recipes lock,queue       some recipes
//	go run ./internal/real/nemesis -faults 'leader-.*'       some faults of the ensemble
//	go run ./internal/real/nemesis -seed 7 -report FILE      the faults of seed 7, and a report
//	go run ./internal/real/nemesis -check FILE               judge the histories beside a report again
//	go run ./internal/real/nemesis -planted                  is each planted bug found, and how soon
//
// It works in rounds: some seconds of faults, and then none. After the faults, each process must do
// one more operation and rest, and nothing may be left behind. Each round is checked by itself, and
// the first failure ends the run. A seed fixes the schedule of faults, but not the run (a failure
// may need several runs with its seed to show again). The exit status is 0 if all went well, 1 if a
// check has failed, and 2 if the nemesis couldn't run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/real/nemesis/cluster"
)

type options struct {
	lasts    time.Duration
	members  int
	clients  int
	seed     uint64
	recipes  string
	faults   string
	report   string
	embedded bool
	check    string
	planted  bool
	bugs     string
	round    time.Duration
	quiet    bool
}

func main() {
	if config := os.Getenv(workerEnv); config != "" {
		if err := runWorker(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}

	var o options
	flag.DurationVar(&o.lasts, "for", time.Minute, "how long to run, or to look for each planted bug")
	flag.IntVar(&o.members, "members", 3, "members of the ensemble")
	flag.IntVar(&o.clients, "clients", 3, "processes of each recipe")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64N(1e6), "of the schedule of faults")
	flag.StringVar(&o.recipes, "recipes", "", "some recipes, such as lock,queue")
	flag.StringVar(&o.faults, "faults", "", "only faults of the ensemble that match this regular expression")
	flag.StringVar(&o.report, "report", "", "an HTML file to write; the histories go beside it, as .json")
	flag.BoolVar(&o.embedded, "embedded", false, "use the embedded server, in place of an ensemble")
	flag.StringVar(&o.check, "check", "", "judge the histories in this file, and run nothing")
	flag.BoolVar(&o.planted, "planted", false, "plant bugs, and look for each")
	flag.StringVar(&o.bugs, "bugs", "", "with -planted: only those that match this regular expression")
	flag.DurationVar(&o.round, "round", 15*time.Second, "how long the faults of a round last")
	flag.BoolVar(&o.quiet, "quiet", false, "print no faults and rounds")
	flag.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := o.run(ctx)
	cancel()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context) (failed bool, err error) {
	if o.check != "" {
		return judgeFile(o.check, os.Stdout)
	}
	names, err := chosen(o.recipes)
	if err != nil {
		return false, err
	}

	if flag.NArg() > 0 || o.members < 1 || o.clients < 2 || o.lasts <= 0 || o.round <= 0 {
		return false, errors.New("there have to be a member, two clients and some time, and no arguments")
	}
	p := plan{Seed: o.seed, Recipes: names, Clients: o.clients, Length: min(o.round, o.lasts), Log: o.log}
	if p.Worker, err = os.Executable(); err != nil {
		return false, err
	}

	fmt.Printf("seed %d\n", o.seed)
	on, err := o.ensemble(ctx, &p)
	if err != nil {
		return false, err
	}
	defer func() {
		if failed := on.Close(); failed != nil && err == nil {
			err = failed
		}
	}()
	fmt.Println(on)
	match, err := regexp.Compile(o.faults)
	if err != nil {
		return false, err
	}

	p.Kinds = slices.DeleteFunc(on.Kinds(), func(kind string) bool { return !match.MatchString(kind) })
	if len(p.Kinds) == 0 {
		return false, fmt.Errorf("no fault matches %q, but there are %s", o.faults, strings.Join(on.Kinds(), ", "))
	}
	if o.planted {
		return o.findPlanted(ctx, on, p)
	}

	report := newReport(o, on)
	failure, err := o.play(ctx, on, p, report)
	if err == nil && failure != "" {
		fmt.Printf("\n%s\n\nThis was seed %d. It fixes the schedule of faults, and not the run, so what has failed may need several runs:\n"+
			"  go run ./internal/real/nemesis %s\n", failure, o.seed, o.again())
	}

	if o.report != "" {
		if failed := report.write(o.report, failure, err); failed != nil && err == nil {
			err = failed
		}
	}
	fmt.Println(report.Summary())
	return failure != "", err
}

func (o options) log(format string, args ...any) {
	if !o.quiet {
		fmt.Printf(format+"\n", args...)
	}
}

// again returns the flags that play the schedule again.
func (o options) again() string {
	s := fmt.Sprintf("-seed %d -for %v -members %d -clients %d -round %v", o.seed, o.lasts, o.members, o.clients, o.round)
	if o.recipes != "" {
		s += " -recipes " + o.recipes
	}
	if o.faults != "" {
		s += fmt.Sprintf(" -faults '%s'", o.faults)
	}
	if o.embedded {
		s += " -embedded"
	}
	return s
}

// ensemble starts the ensemble, and completes the plan.
func (o options) ensemble(ctx context.Context, p *plan) (ensemble, error) {
	if o.embedded {
		p.Timeout = embeddedTimeout
		return startEmbedded(o.members)
	}
	p.Timeout = clusterTimeout
	dir, err := os.MkdirTemp("", "nemesis-ensemble")
	if err != nil {
		return nil, err
	}

	on, err := cluster.Start(ctx, cluster.Config{Members: o.members, Dir: dir, Log: o.log})
	if err != nil {
		return nil, fmt.Errorf("%w (-embedded needs no ensemble)", err)
	}
	return on, nil
}

// clusterTimeout is the session timeout of clients of a real ensemble.
const clusterTimeout = 4 * time.Second

// play plays rounds until time is up. It returns the failure, if any.
func (o options) play(ctx context.Context, on ensemble, p plan, report *report) (failure string, err error) {
	r, err := begin(ctx, on, p)
	if r != nil {
		defer r.end()
	}
	if err != nil {
		return "", err
	}

	if err := report.open(o.report); err != nil {
		return "", err
	}
	defer report.close()

	for end := time.Now().Add(o.lasts); time.Now().Before(end); {
		round, err := r.round(ctx)
		if err != nil {
			return "", err
		}
		v := judge(round)
		if err := report.add(round, v); err != nil {
			return "", err
		}
		r.log("round %d: %d operations, %d faults, %d failures", round.Number, len(round.Ops), len(round.Faults), len(v.Failures))
		if v.failed() {
			return v.text(), nil
		}
	}

	return "", nil
}
