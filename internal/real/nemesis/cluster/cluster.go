// Package cluster runs a real ZooKeeper ensemble outside of go test. It breaks the ensemble as
// machines and networks break (partitions, kills, pauses, disks, clocks, lost data).
//
// Every member is one process in a container or on this machine (see package ensemble). All traffic
// between members passes through this process, and so does all traffic of clients. A cluster ends
// when this process ends (for any reason) and leaves only its logs behind.
package cluster

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// A Config tells [Start] what to start.
type Config struct {
	Members int
	Dir     string // gets the log of each member
	Log     func(format string, args ...any)
}

// A Cluster is a running ensemble. Any goroutine may call its methods (but Aim before Inject).
type Cluster struct {
	Links   // of clients
	config  Config
	members []*member
	network network
	version string // of ZooKeeper
	missing map[string]string

	// grace is how long Heal and faults wait for members that should soon be healthy.
	grace time.Duration

	aim Clients    // nil if the clients aren't known
	mu  sync.Mutex // protects the claims of faults
}

// String returns which ZooKeeper it is, and how many members it has.
func (c *Cluster) String() string {
	return fmt.Sprintf("ZooKeeper %s, with %d members", c.version, len(c.members))
}

// Connect returns the connect string for a client process (by its number, from 0). It has one
// address for each member, and each address is this client's own proxy.
func (c *Cluster) Connect(client int) (string, error) {
	var addrs []string
	for _, m := range c.members {
		addrs = append(addrs, m.addr())
	}
	return c.Open(client, addrs, func(at int) *reach.Link {
		return c.network.add(end{client: true, n: client}, c.members[at].end()).link
	})
}

// Clients are the processes that use the ensemble. Some faults prefer clients that hold a lock, and
// others show only when holders change. The effects of Keep and Hurry last until the fault ends.
type Clients interface {
	Holders() []int      // the clients that hold a lock
	Keep(clients ...int) // makes clients keep their locks
	Hurry()              // makes all clients hold only for a moment, so that holders change
}

// Aim gives the cluster the clients that faults can prefer.
func (c *Cluster) Aim(at Clients) { c.aim = at }

// each calls do for all members at the same time.
func each(members []*member, do func(*member) error) error {
	return reach.Each(members, func(m *member) error {
		if err := do(m); err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
		return nil
	})
}

// ids returns the numbers of members, for the details of a fault.
func ids(members []*member) []int {
	numbers := make([]int, len(members))
	for i, m := range members {
		numbers[i] = m.id
	}
	slices.Sort(numbers)
	return numbers
}

// minority is the greatest number of members that can fail.
func (c *Cluster) minority() int { return (len(c.members) - 1) / 2 }

// others returns all members but those given.
func (c *Cluster) others(without ...*member) []*member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool { return slices.Contains(without, m) })
}

// reports returns the reports of members that serve.
func (c *Cluster) reports() map[*member]reach.Report { return reach.Reports(c.members, (*member).addr) }

// leader returns the member that leads, or nil.
func (c *Cluster) leader() *member { return reach.Leader(c.reports()) }

// unsynced returns nil if all of these members have every transaction that was committed until now.
// Otherwise it returns a reason. They must serve and one of them must lead.
func (c *Cluster) unsynced(members []*member) error {
	// The leader's zxid comes first: all members must reach it by the end.
	leader, before, err := reach.SyncedLeader(members, (*member).addr)
	if err != nil {
		return err
	}

	// A leader begins its epoch at number 0, which is no transaction. Then synced followers know
	// everything.
	if uint32(before[leader].Zxid) == 0 {
		return nil
	}
	after := c.reports()
	for _, m := range members {
		if after[m].Zxid < before[leader].Zxid {
			return fmt.Errorf("%v is behind %v", m, leader)
		}
	}

	return nil
}
