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
)

// A Cluster is a ZooKeeper of real members, for one test. Whatever its members
// send each other passes through this process, where it can be held up; what
// clients send does not.
//
// All methods of a cluster and of its members block until what they say is so, and
// fail the test that [Start] was called for when it does not come about within a
// minute. They must be called from that test's goroutine, or from a subtest's
// while no other one runs.
type Cluster struct {
	tb       testing.TB
	launcher launcher
	members  []*Member
}

// Start starts an ensemble of n members, or with n = 1 one server that stands
// alone, and returns when all of them serve. It is gone when tb ends, also when
// the whole process is killed.
//
// Three members take about three seconds and 300 MB, so tests do well to share
// one. Start does not look at ZKRECIPES_SERVERS. Where ZooKeeper can be run
// neither in Docker nor locally it skips tb, or fails it if
// ZKRECIPES_REQUIRE_REAL is 1.
func Start(tb testing.TB, n int, opts ...Option) *Cluster {
	tb.Helper()
	if n < 1 {
		tb.Fatalf("ensemble: a cluster of %d members", n)
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

// launch links the members and runs them, all at once.
func (c *Cluster) launch(settings *settings) error {
	specs := make([]serverSpec, len(c.members))
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
		launched.Go(func() { m.server, errs[i] = launchServer(c.launcher, specs[i]) })
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

// ConnectString names the client ports of all members.
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

// Members returns all members, the first of which has ID 1.
func (c *Cluster) Members() []*Member { return c.members }

// Leader waits until a member leads, and returns it. One that has been isolated
// still says that it leads for a while after the others have elected another;
// that other one is returned then.
func (c *Cluster) Leader() *Member {
	c.tb.Helper()
	var leader *Member
	c.wait("leader", func() error {
		var newest uint64
		for m, r := range c.reports() {
			if r.leads() && (leader == nil || r.epoch > newest) {
				leader, newest = m, r.epoch
			}
		}
		if leader == nil {
			return errors.New("nobody leads")
		}
		return nil
	})
	return leader
}

// Followers returns the members that follow a leader. It waits until there is one.
func (c *Cluster) Followers() []*Member {
	c.tb.Helper()
	var followers []*Member
	c.wait("followers", func() error {
		reports := c.reports()
		followers = nil
		for _, m := range c.members {
			if reports[m].mode == "follower" {
				followers = append(followers, m)
			}
		}
		if followers == nil {
			return errors.New("nobody follows")
		}
		return nil
	})
	return followers
}

// Restart kills all members and, when all are down, starts them again with their
// data. Sessions do not age meanwhile. It returns when all serve.
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

// WaitHealthy waits until all members serve, one of them leads, and all others
// are in step with it.
func (c *Cluster) WaitHealthy() {
	c.tb.Helper()
	c.wait("a healthy cluster", c.unhealthy)
}

// unhealthy says what is wrong, if anything.
func (c *Cluster) unhealthy() error {
	reports := c.reports()
	var leaders []*Member
	for _, m := range c.members {
		r, ok := reports[m]
		if !ok {
			return fmt.Errorf("member %d does not serve", m.id)
		}
		if r.leads() {
			leaders = append(leaders, m)
		}
	}
	if len(leaders) != 1 {
		return fmt.Errorf("%d leaders", len(leaders))
	}
	if len(c.members) == 1 {
		return nil
	}
	synced, err := syncedFollowers(leaders[0].ConnectString())
	if err == nil && synced != len(c.members)-1 {
		err = fmt.Errorf("%d followers in step", synced)
	}
	return err
}

// reports asks every member about itself, all at once, and returns what those
// said that serve.
func (c *Cluster) reports() map[*Member]report {
	var (
		mu      sync.Mutex
		reports = make(map[*Member]report)
		asked   sync.WaitGroup
	)
	for _, m := range c.members {
		asked.Go(func() {
			r, err := askReport(m.ConnectString())
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		c.fail(fmt.Errorf("waiting for %s: %w", what, err))
	}
}

// check fails the test if err is one.
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
			c.tb.Logf("ensemble: member %d:\n%s", m.id, m.server.log())
		}
	}
	c.tb.Fatalf("ensemble: %v", err)
}
