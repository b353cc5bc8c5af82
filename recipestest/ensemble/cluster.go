package ensemble

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// A Cluster is a ZooKeeper of real members, for one test. The traffic between members passes
// through this process, which can delay or stall it. The clients' traffic doesn't.
//
// Every method of a cluster and of its members blocks until it has taken effect. If that takes
// longer than three minutes, it fails the test that called [Start]. Call the methods from that
// test's goroutine, or from a subtest's while no other subtest runs.
type Cluster struct {
	tb       testing.TB // nil for the server that all tests share
	launcher launch.Launcher
	members  []*Member
	took     time.Duration // to start
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

	c := &Cluster{tb: tb, launcher: launcher}
	// Before the start, so that a cluster that fails to start is removed too.
	tb.Cleanup(func() {
		if err := c.end(); err != nil {
			tb.Errorf("ensemble: %v", err)
		}
	})
	if err := c.start(n, newSettings(opts)); err != nil {
		tb.Fatalf("ensemble: start: %v", err)
	}
	tb.Logf("ensemble: %s", c.about())
	return c
}

// start starts members, and waits until they are healthy.
func (c *Cluster) start(n int, settings *settings) error {
	begin := time.Now()
	for id := 1; id <= n; id++ {
		at, err := reach.NewPlace(c.launcher.Bind())
		if err != nil {
			return err
		}
		c.members = append(c.members, &Member{cluster: c, id: id, at: at, links: make(map[*Member]*reach.Link)})
	}

	// A server's config names its links, so create all links first.
	specs := make(map[*Member]launch.Spec)
	for _, m := range c.members {
		peers, err := m.linkUp()
		if err != nil {
			return err
		}
		specs[m] = settings.spec(m.id, m.at, peers)
	}

	// Members wait for each other, so start all at once.
	err := reach.Each(c.members, func(m *Member) (err error) {
		m.server, err = launch.Start(c.launcher, specs[m])
		return err
	})
	if err == nil {
		err = c.poll("a healthy cluster", c.unhealthy)
	}
	c.took = time.Since(begin)
	return err
}

// end kills the servers and removes their data.
func (c *Cluster) end() error { return reach.Each(c.members, (*Member).end) }

// about says where the servers are, and where they run.
func (c *Cluster) about() string {
	return fmt.Sprintf("ZooKeeper at %s, each member %v, up after %v", c.ConnectString(), c.launcher, c.took.Round(time.Millisecond))
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
		if leader = reach.Leader(c.reports()); leader == nil {
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
	// All must be down at the same time.
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

// unhealthy returns why the cluster isn't healthy, or nil if it is.
func (c *Cluster) unhealthy() error {
	_, _, err := reach.SyncedLeader(c.members, (*Member).ConnectString)
	return err
}

func (c *Cluster) reports() map[*Member]reach.Report {
	return reach.Reports(c.members, (*Member).ConnectString)
}

// wait polls until check returns nil, or fails the test.
func (c *Cluster) wait(what string, check func() error) {
	c.tb.Helper()
	if err := c.poll(what, check); err != nil {
		c.tb.Fatalf("ensemble: %v", err)
	}
}

// poll polls until check returns nil. Its error has the ends of the members' logs.
func (c *Cluster) poll(what string, check func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), launch.Timeout)
	defer cancel()
	err := reach.Poll(ctx, check)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("waiting for %s: %w", what, err)
	for _, m := range c.members {
		err = fmt.Errorf("%w\nmember %d:\n%s", err, m.id, m.server.Tail())
	}
	return err
}
