package ensemble

import (
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// A Member is one server of a [Cluster].
type Member struct {
	cluster  *Cluster
	id       int
	at       reach.Place
	server   *launch.Supervisor
	links    map[*Member]*reach.Link // to the members that it dials
	isolated bool
	delay    time.Duration
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
			l := reach.NewLink()
			m.links[peer] = l
			var err error
			if quorum, err = l.Listen(reach.Local(0), reach.Local(peer.at.Quorum)); err != nil {
				return nil, err
			}
			if election, err = l.Listen(reach.Local(0), reach.Local(peer.at.Election)); err != nil {
				return nil, err
			}
			host = m.cluster.launcher.Loopback()
		}

		lines = append(lines, fmt.Sprintf("server.%d=%s:%d:%d", peer.id, host, quorum, election))
	}
	return lines, nil
}

// end kills the server and removes its data.
func (m *Member) end() error {
	for _, l := range m.links {
		l.Close()
	}

	if m.server == nil {
		return nil
	}
	// If the server may still run, it keeps its ports.
	if err := m.server.End(); err != nil {
		return fmt.Errorf("end of member %d: %w", m.id, err)
	}
	m.at.Leave()
	return nil
}

// ID returns the member's number in the ensemble, from 1.
func (m *Member) ID() int { return m.id }

// ConnectString returns the member's address for clients.
func (m *Member) ConnectString() string { return reach.Local(m.at.Client) }

// SecureConnectString returns the member's address for clients with TLS. [WithTLS] opens it.
func (m *Member) SecureConnectString() string { return reach.Local(m.at.Secure) }

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
	if err := m.server.Command(verb); err != nil {
		m.cluster.tb.Fatalf("ensemble: member %d: %v", m.id, err)
	}
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

// adjustLinks applies isolation and delay to both directions of the links between m and all others.
func (m *Member) adjustLinks() {
	for peer, dialled := range m.links {
		traffic := reach.Traffic{Stalled: m.isolated || peer.isolated, Delay: m.delay + peer.delay}
		dialled.Set(traffic, traffic)
		peer.links[m].Set(traffic, traffic)
	}
}
