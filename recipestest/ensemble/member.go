package ensemble

import (
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// A Member is one server of a [Cluster].
type Member struct {
	cluster  *Cluster
	id       int
	at       launch.Place
	server   *launch.Supervisor
	links    map[*Member]*launch.Link // to the members that it dials
	isolated bool
	delay    time.Duration
}

func newMember(c *Cluster, id int) (*Member, error) {
	at, err := launch.NewPlace(c.launcher.Bind())
	return &Member{cluster: c, id: id, at: at, links: make(map[*Member]*launch.Link)}, err
}

// linkUp creates the links to all other members. It returns the lines of m's zoo.cfg that list the
// members, each with the address at which m reaches it.
func (m *Member) linkUp() ([]string, error) {
	if len(m.cluster.members) == 1 {
		return nil, nil
	}

	var lines []string
	for _, peer := range m.cluster.members {
		// Members tell each other at which address to call them back. Only with the wildcard
		// address does no member find out an address that bypasses the links.
		host, quorum, election := "0.0.0.0", m.at.Quorum, m.at.Election

		if peer != m {
			l := launch.NewLink()
			m.links[peer] = l
			var err error
			if quorum, err = l.Listen(launch.Local(0), launch.Local(peer.at.Quorum)); err != nil {
				return nil, err
			}
			if election, err = l.Listen(launch.Local(0), launch.Local(peer.at.Election)); err != nil {
				return nil, err
			}
			host = m.cluster.launcher.Loopback()
		}

		lines = append(lines, fmt.Sprintf("server.%d=%s:%d:%d", peer.id, host, quorum, election))
	}
	return lines, nil
}

// end kills the server and removes its data. The test has ended, so errors are only reported.
func (m *Member) end() {
	for _, l := range m.links {
		l.Close()
	}

	if m.server == nil {
		return
	}

	if err := m.server.End(); err != nil {
		m.cluster.tb.Errorf("ensemble: end of member %d: %v", m.id, err)
		return
	}

	m.at.Leave()
}

// ID returns the member's number in the ensemble, from 1.
func (m *Member) ID() int { return m.id }

// ConnectString returns the member's address for clients.
func (m *Member) ConnectString() string { return launch.Local(m.at.Client) }

// SecureConnectString returns the member's address for clients with TLS. [WithTLS] opens it.
func (m *Member) SecureConnectString() string { return launch.Local(m.at.Secure) }

// Stop kills the member (kill -9). Its data stays for [Member.Start].
func (m *Member) Stop() {
	m.cluster.tb.Helper()
	m.command("kill")
}

// Start starts the member after [Member.Stop]. It doesn't wait until the member serves, because
// that can take a quorum. Use [Cluster.WaitHealthy] for that.
func (m *Member) Start() {
	m.cluster.tb.Helper()
	m.command("start")
}

// Pause freezes the member (SIGSTOP): its sockets stay open, but it neither reads nor writes.
func (m *Member) Pause() {
	m.cluster.tb.Helper()
	m.command("pause")
}

// Resume continues a paused member.
func (m *Member) Resume() {
	m.cluster.tb.Helper()
	m.command("resume")
}

func (m *Member) command(verb string) {
	m.cluster.tb.Helper()
	m.cluster.check(fmt.Sprintf("%s member %d", verb, m.id), m.server.Command(verb))
}

// Isolate cuts the member off from all others, in both directions. Like a network that loses every
// packet, it gives neither side an error. Clients still reach the member. A follower serves them
// until it hasn't heard from its leader for syncLimit ticks. A leader serves them until it hasn't
// heard from its followers for as long.
func (m *Member) Isolate() {
	m.isolated = true
	m.adjustLinks()
}

// Rejoin undoes [Member.Isolate]. Bytes that were stalled arrive now. Rejoin doesn't wait until the
// member follows again. Use [Cluster.WaitHealthy] for that.
func (m *Member) Rejoin() {
	m.isolated = false
	m.adjustLinks()
}

// Delay delays the traffic between the member and all others by d, in both directions, until the
// next call (zero ends it). Between two delayed members the delays add up. A delay of syncLimit
// ticks or more has the effect of [Member.Isolate].
func (m *Member) Delay(d time.Duration) {
	m.delay = d
	m.adjustLinks()
}

// adjustLinks applies isolation and delay to the links between m and all others, in both
// directions.
func (m *Member) adjustLinks() {
	for peer, dialled := range m.links {
		traffic := launch.Traffic{Stalled: m.isolated || peer.isolated, Delay: m.delay + peer.delay}
		dialled.Set(traffic, traffic)
		peer.links[m].Set(traffic, traffic)
	}
}
