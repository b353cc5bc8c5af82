// Package cluster runs a real ZooKeeper ensemble outside of go test, and breaks it as machines and
// networks break: partitions, kills, pauses, disks, clocks, lost data.
//
// Every member is one process, in a container or on this machine (see package ensemble). All
// traffic between members, and between clients and members, passes through this process. A cluster
// ends when this process ends, for any reason, and leaves only its logs behind.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// A Config tells [Start] what to start.
type Config struct {
	Members int
	Dir     string                           // gets the log of each member
	Log     func(format string, args ...any) // may be nil
}

// A Cluster is a running ensemble. Any goroutine may call its methods.
type Cluster struct {
	config  Config
	members []*member
	network network
	version string // of ZooKeeper
	missing map[string]string

	// grace is how long Heal and faults wait for members that should soon be healthy.
	grace time.Duration

	mu      sync.Mutex // protects the fields below
	clients map[int][]*wire
	strings map[int]string // the connect strings of clients
	aim     Clients        // nil if the clients aren't known
}

// Start starts an ensemble, and returns when all its members serve. If there's neither Docker nor a
// local ZooKeeper, its error says so.
func Start(ctx context.Context, config Config) (_ *Cluster, err error) {
	if config.Members < 3 {
		return nil, fmt.Errorf("cluster: an ensemble has at least 3 members, got %d", config.Members)
	}
	if config.Log == nil {
		config.Log = func(string, ...any) {}
	}

	if err := os.MkdirAll(config.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}

	launcher, err := launch.Find()
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	launch.RemoveLeftovers(launcher)

	c := &Cluster{
		config:  config,
		grace:   time.Minute,
		clients: make(map[int][]*wire),
		strings: make(map[int]string),
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()

	for id := 1; id <= config.Members; id++ {
		at, err := launch.NewPlace(launcher.Bind())
		if err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
		c.members = append(c.members, &member{id: id, at: at})
	}

	if err := c.launch(launcher); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if err := c.Heal(ctx); err != nil {
		return nil, err
	}

	about, err := launch.AskReport(c.members[0].addr())
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	c.version = about.Version

	c.missing = c.lookForTools()
	err = c.refusal()
	if err != nil {
		c.missing["reconfig"] = "the ensemble does not let its list of members change: " + err.Error()
	}
	if errors.Is(err, errTooOld) {
		c.missing["containers"] = "empty parents are not removed: " + err.Error()
	}

	return c, nil
}

// launch connects all members and starts them, all at the same time.
func (c *Cluster) launch(launcher launch.Launcher) error {
	for _, from := range c.members {
		for _, to := range c.members {
			if from != to {
				if err := c.wireMembers(from, to); err != nil {
					return err
				}
			}
		}
	}

	return each(c.members, func(m *member) (err error) {
		m.server, err = launch.Start(launcher, c.spec(m))
		return err
	})
}

// diskSize is how much a member can write. (A day's log doesn't fit, but a member discards old logs
// when it starts.)
const diskSize = 128 << 20

// spec describes a member. All members have the same list of members, by name. Each has its own
// hosts file, where the other names lead to its links.
func (c *Cluster) spec(m *member) launch.Spec {
	config := []string{
		"tickTime=500", // grants sessions of 1 s to 10 s
		"initLimit=20",
		"syncLimit=10", // a leader that is cut off answers for 5 s, longer than clients' timeouts
		fmt.Sprintf("clientPort=%d", m.at.Client),
		"clientPortAddress=127.0.0.1",
		"maxClientCnxns=0",
		"4lw.commands.whitelist=*",
		"admin.enableServer=false",
		"extendedTypesEnabled=true",
		"preAllocSize=1024",
		"snapCount=20000",
		"autopurge.purgeInterval=1", // in hours, and at each start
		"standaloneEnabled=false",
		"reconfigEnabled=true",
		// By default, members that have lost each other retry only once a minute.
		"fastleader.maxNotificationInterval=1000",
	}

	hosts := []string{"127.0.0.1 localhost"}
	for _, peer := range c.members {
		config = append(config, peer.line())
		hosts = append(hosts, m.hostOf(peer)+" "+peer.name())
	}

	return launch.Spec{
		ID:     m.id,
		Config: config,
		JVMFlags: []string{
			"-Djdk.net.hosts.file={dir}/hosts",
			"-Dznode.container.checkIntervalMs=1000",
			"-Dzookeeper.DigestAuthenticationProvider.superDigest=" + superDigest,
		},
		Files:    map[string][]byte{"hosts": []byte(strings.Join(hosts, "\n") + "\n")},
		Ports:    []int{m.at.Client, m.at.Quorum, m.at.Election},
		DiskSize: diskSize,
		Traced:   true,
	}
}

// String returns which ZooKeeper it is, and how many members it has.
func (c *Cluster) String() string {
	return fmt.Sprintf("ZooKeeper %s, with %d members", c.version, len(c.members))
}

// Connect returns the connect string for a client process (by its number, from 0). It has one
// address for each member, and each address is this client's own proxy. The same number always
// gives the same string.
func (c *Cluster) Connect(client int) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.strings[client]; ok {
		return known, nil
	}

	var addrs []string
	for _, m := range c.members {
		w := c.network.add(end{client: true, n: client}, m.end())
		c.clients[client] = append(c.clients[client], w)
		port, err := w.link.Listen(launch.Local(0), launch.Local(m.at.Client))
		if err != nil {
			return "", fmt.Errorf("cluster: client %d: %w", client, err)
		}
		addrs = append(addrs, launch.Local(port))
	}

	c.strings[client] = strings.Join(addrs, ",")
	return c.strings[client], nil
}

// Clients are the processes that use the ensemble. Some faults prefer clients that hold a lock, and
// others show only when holders change. The effects of Keep and Hurry last until the fault ends.
type Clients interface {
	Holders() []int      // the clients that hold a lock
	Keep(clients ...int) // makes clients keep their locks
	Hurry()              // makes all clients hold only for a moment, so that holders change
}

// Aim gives the cluster the clients that faults can prefer.
func (c *Cluster) Aim(at Clients) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aim = at
}

// Reset resets the current connections of a client. Call it after the client's process was killed.
func (c *Cluster) Reset(client int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.clients[client] {
		w.link.Reset()
	}
}

// Close ends and removes all members, and leftovers of killed runs. The logs stay.
func (c *Cluster) Close() error {
	err := each(c.members, func(m *member) error {
		if m.server == nil {
			return nil
		}
		err := errors.Join(m.copyLog(c.config.Dir), m.server.End())
		m.at.Leave()
		return err
	})
	c.network.close()
	return err
}

// copyLog writes the log of a member to a file of its own.
func (m *member) copyLog(dir string) error {
	f, err := os.Create(filepath.Join(dir, m.name()+".log"))
	if err != nil {
		return err
	}
	return errors.Join(m.server.CopyLog(f), f.Close())
}

// each calls do for all members at the same time.
func each(members []*member, do func(*member) error) error {
	errs := make([]error, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() {
			if err := do(m); err != nil {
				errs[i] = fmt.Errorf("member %d: %w", m.id, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
