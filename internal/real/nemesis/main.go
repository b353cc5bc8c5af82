// Nemesis runs processes of every recipe against a real ensemble. Meanwhile it breaks the ensemble,
// the network and the processes. Then it checks the histories of all processes together.
//
//	go run ./internal/real/nemesis -for 30m -members 5       an ensemble of five, in containers
//	go run ./internal/real/nemesis -embedded -for 1m         the embedded server: needs Go alone
//	go run ./internal/real/nemesis -recipes lock,queue       some recipes
//	go run ./internal/real/nemesis -faults 'leader-.*'       some faults of the ensemble
//	go run ./internal/real/nemesis -seed 7                   the faults of seed 7
//	go run ./internal/real/nemesis -histories FILE           write down what all processes did
//	go run ./internal/real/nemesis -check FILE               judge such histories again
//	go run ./internal/real/nemesis -planted                  is each planted bug found, and how soon
//
// It works in rounds: some seconds of faults, and then none. After the faults, each process must do
// one more operation and rest, and nothing may be left behind. Each round is checked by itself, and
// the first failure ends the run. A seed fixes the schedule of faults, but not the run (a failure
// may need several runs with its seed to show again). The exit status is 0 if all went well, 1 if a
// check has failed, and 2 if the nemesis couldn't run (or ZooKeeper's members have lost
// transactions).
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
	plan
	members                                 int
	recipes, faults, histories, check, bugs string
	embedded, planted, quiet                bool
}

func main() {
	workIfTold()
	var o options
	flag.DurationVar(&o.For, "for", time.Minute, "how long to run, or to look for each planted bug")
	flag.IntVar(&o.members, "members", 3, "members of the ensemble")
	flag.IntVar(&o.Clients, "clients", 3, "processes of each recipe")
	flag.Uint64Var(&o.Seed, "seed", rand.Uint64N(1e6), "of the schedule of faults")
	flag.StringVar(&o.recipes, "recipes", "", "some recipes, such as lock,queue")
	flag.StringVar(&o.faults, "faults", "", "only faults of the ensemble that match this regular expression")
	flag.StringVar(&o.histories, "histories", "", "a file to write the histories to, for -check")
	flag.BoolVar(&o.embedded, "embedded", false, "use the embedded server, in place of an ensemble")
	flag.StringVar(&o.check, "check", "", "judge the histories in this file, and run nothing")
	flag.BoolVar(&o.planted, "planted", false, "plant bugs, and look for each")
	flag.StringVar(&o.bugs, "bugs", "", "with -planted: only those that match this regular expression")
	flag.DurationVar(&o.Length, "round", 15*time.Second, "how long the faults of a round last")
	flag.BoolVar(&o.quiet, "quiet", false, "print no faults and rounds")
	flag.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := o.run(ctx)
	// os.Exit runs no deferred calls.
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
	if flag.NArg() > 0 || o.members < 1 || o.Clients < 2 || o.For <= 0 || o.Length <= 0 {
		return false, errors.New("there have to be a member, two clients and some time, and no arguments")
	}
	if o.Recipes, err = chosen(o.recipes); err != nil {
		return false, err
	}
	if o.Worker, err = os.Executable(); err != nil {
		return false, err
	}
	o.Length, o.Log = min(o.Length, o.For), o.log

	fmt.Printf("seed %d\n", o.Seed)
	on, err := o.ensemble(ctx)
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

	o.Kinds = slices.DeleteFunc(on.Kinds(), func(kind string) bool { return !match.MatchString(kind) })
	if len(o.Kinds) == 0 {
		return false, fmt.Errorf("no fault matches %q, but there are %s", o.faults, strings.Join(on.Kinds(), ", "))
	}
	if o.planted {
		return o.findPlanted(ctx, on, o.bugs)
	}

	// An ordinary run plays rounds until time is up or a check fails.
	for kind, why := range on.Missing() {
		o.log("without %s: %s", kind, why)
	}
	report := newReport()
	if o.histories != "" {
		if report.histories, err = os.Create(o.histories); err != nil {
			return false, err
		}
		defer report.histories.Close()
	}
	failure, err := o.play(ctx, on, report)
	if err == nil && failure != "" {
		fmt.Printf("\n%s\n\nThis was seed %d. It fixes the schedule of faults, and not the run, so what has failed may need several runs:\n"+
			"  go run ./internal/real/nemesis %s\n", failure, o.Seed, o.again())
	}

	// If ZooKeeper itself has forgotten transactions, the failure says nothing about the recipes.
	if err == nil && failure != "" {
		var what string
		if what, err = on.Disagreement(ctx); err == nil && what != "" {
			err = fmt.Errorf("the members have different trees, which is a fault of ZooKeeper's:\n%s", what)
		}
	}

	fmt.Println(report)
	return failure != "", err
}

func (o options) log(format string, args ...any) {
	if !o.quiet {
		fmt.Printf(format+"\n", args...)
	}
}

// again returns the flags that play the schedule again.
func (o options) again() string {
	s := fmt.Sprint("-seed ", o.Seed)
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "seed" {
			s += fmt.Sprintf(" -%s='%s'", f.Name, f.Value)
		}
	})
	return s
}

// ensemble starts the ensemble, and completes the plan.
func (o *options) ensemble(ctx context.Context) (ensemble, error) {
	if o.embedded {
		o.Timeout = embeddedTimeout
		return startEmbedded(o.members)
	}
	o.Timeout = clusterTimeout
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
