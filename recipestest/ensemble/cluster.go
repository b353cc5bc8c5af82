package ensemble

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// A Cluster is a ZooKeeper of real members, for one test. The traffic between members passes
// through this process, which can delay or stall it. The clients' traffic doesn't.
//
// Every method of a cluster and of its members blocks until it has taken effect. If that takes
// longer than three minutes, it fails the test that called [Start]. Call the methods from that
// test's goroutine, or from a subtest's while no other subtest runs.
type Cluster struct {
	tb       testing.TB
	launcher launch.Launcher
	members  []*Member
}

// Start starts an ensemble of n members (or one standalone server if n is 1), and returns when all
// of them serve. The cluster is removed when tb ends, even if the process is killed.
//
// Three members take about three seconds and 300 MB, so tests should share a cluster. Start ignores
// ZKRECIPES_SERVERS. It skips tb if ZooKeeper can't be run in Docker or locally, or if -short or
// ZKRECIPES_REAL=0 leaves real servers out. With ZKRECIPES_REQUIRE_REAL=1 it fails tb instead.
func Start(tb testing.TB, n int, opts ...Option) *Cluster {
	tb.Helper()
	if n < 1 {
		tb.Fatalf("ensemble: a cluster must have at least 1 member, got %d", n)
	}

	launcher, err := findLauncher()
	if err != nil {
		unavailable(tb, err)
	}

	begin := time.Now()
	c := &Cluster{tb: tb, launcher: launcher}
	for id := 1; id <= n; id++ {
		m, err := newMember(c, id)
		c.check("member", err)
		c.members = append(c.members, m)
	}

	tb.Cleanup(c.end)
	c.check("start", c.launch(newSettings(opts)))
	c.WaitHealthy()

	tb.Logf("ensemble: ZooKeeper at %s, each member %v, up after %v",
		c.ConnectString(), launcher, time.Since(begin).Round(time.Millisecond))
	return c
}

// launch connects the members by links and starts them, all at the same time.
func (c *Cluster) launch(settings *settings) error {
	specs := make([]launch.Spec, len(c.members))
	for i, m := range c.members {
		peers, err := m.linkUp()
		if err != nil {
			return err
		}
		specs[i] = settings.spec(m.id, m.at, peers)
	}

	errs := make([]error, len(c.members))
	var launched sync.WaitGroup
	for i, m := range c.members {
		launched.Go(func() { m.server, errs[i] = launch.Start(c.launcher, specs[i]) })
	}
	launched.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) end() {
	var ended sync.WaitGroup
	for _, m := range c.members {
		ended.Go(m.end)
	}
	ended.Wait()
}

// ConnectString returns the client addresses of all members.
func (c *Cluster) ConnectString() string {
	addrs := make([]string, len(c.members))
	for i, m := range c.members {
		addrs[i] = m.ConnectString()
	}
	return strings.Join(addrs, ",")
}

// Server returns the whole cluster as a server for tb.
func (c *Cluster) Server(tb testing.TB) *recipestest.Server {
	tb.Helper()
	return recipestest.Attach(tb, c.ConnectString())
}

// Members returns all members in the order of their IDs, from 1.
func (c *Cluster) Members() []*Member { return c.members }

// Leader waits until a member leads, and returns it. (An isolated leader claims to lead for a while
// after the others have elected another leader. Then Leader returns the new leader.)
func (c *Cluster) Leader() *Member {
	c.tb.Helper()
	var leader *Member
	c.wait("leader", func() error {
		var newest uint64
		for m, r := range c.reports() {
			if r.Leads() && (leader == nil || r.Epoch() > newest) {
				leader, newest = m, r.Epoch()
			}
		}
		if leader == nil {
			return errors.New("no member leads")
		}
		return nil
	})
	return leader
}

// Followers returns the members that follow a leader. It waits until there is at least one.
func (c *Cluster) Followers() []*Member {
	c.tb.Helper()
	var followers []*Member
	c.wait("followers", func() error {
		reports := c.reports()
		followers = nil

		for _, m := range c.members {
			if reports[m].Mode == "follower" {
				followers = append(followers, m)
			}
		}

		if followers == nil {
			return errors.New("no member follows a leader")
		}
		return nil
	})
	return followers
}

// Restart kills all members, waits until all are down, and starts them again with their data. It
// returns when all serve. Sessions don't age meanwhile.
func (c *Cluster) Restart() {
	c.tb.Helper()
	for _, m := range c.members {
		m.Stop()
	}
	for _, m := range c.members {
		m.Start()
	}
	c.WaitHealthy()
}

// WaitHealthy waits until all members serve, one of them leads, and all others are synced with it.
func (c *Cluster) WaitHealthy() {
	c.tb.Helper()
	c.wait("a healthy cluster", c.unhealthy)
}

// unhealthy returns why the cluster is not healthy, or nil if it is.
func (c *Cluster) unhealthy() error {
	reports := c.reports()
	var leaders []*Member
	for _, m := range c.members {
		r, ok := reports[m]
		if !ok {
			return fmt.Errorf("member %d does not serve", m.id)
		}
		if r.Leads() {
			leaders = append(leaders, m)
		}
	}

	if len(leaders) != 1 {
		return fmt.Errorf("%d members lead", len(leaders))
	}
	if len(c.members) == 1 {
		return nil
	}

	synced, err := launch.SyncedFollowers(leaders[0].ConnectString())
	if err == nil && synced != len(c.members)-1 {
		err = fmt.Errorf("%d followers are synced", synced)
	}
	return err
}

// reports asks all members for a report at the same time. It returns the reports of members that
// serve.
func (c *Cluster) reports() map[*Member]launch.Report {
	var (
		mu      sync.Mutex
		reports = make(map[*Member]launch.Report)
		asked   sync.WaitGroup
	)

	for _, m := range c.members {
		asked.Go(func() {
			r, err := launch.AskReport(m.ConnectString())
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			reports[m] = r
		})
	}

	asked.Wait()
	return reports
}

// wait polls until check returns nil.
func (c *Cluster) wait(what string, check func() error) {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), launch.Timeout)
	defer cancel()
	if err := launch.Poll(ctx, check); err != nil {
		c.fail(fmt.Errorf("waiting for %s: %w", what, err))
	}
}

// check fails the test if err is not nil.
func (c *Cluster) check(what string, err error) {
	c.tb.Helper()
	if err != nil {
		c.fail(fmt.Errorf("%s: %w", what, err))
	}
}

// fail fails the test with the logs of all members.
func (c *Cluster) fail(err error) {
	c.tb.Helper()
	for _, m := range c.members {
		if m.server != nil {
			c.tb.Logf("ensemble: member %d:\n%s", m.id, m.server.Tail())
		}
	}
	c.tb.Fatalf("ensemble: %v", err)
}
