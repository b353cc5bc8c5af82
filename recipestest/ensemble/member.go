package ensemble

import (
	"fmt"
	"time"
)

// A Member is one server of a [Cluster].
type Member struct {
	cluster  *Cluster
	id       int
	at       place
	server   *supervisor
	links    map[*Member]*link // to the members that it dials
	isolated bool
	delay    time.Duration
}

func newMember(c *Cluster, id int) (*Member, error) {
	at, err := newPlace(c.launcher.bind())
	return &Member{cluster: c, id: id, at: at, links: make(map[*Member]*link)}, err
}

// linkUp makes the links to all others, and returns the lines of zoo.cfg that
// name them as m sees them.
func (m *Member) linkUp() ([]string, error) {
	if len(m.cluster.members) == 1 {
		return nil, nil
	}
	var lines []string
	for _, peer := range m.cluster.members {
		// Members tell each other where to be called back, except for the address
		// that stands for any: only with that one nobody learns a way around the
		// links.
		host, quorum, election := "0.0.0.0", m.at.quorum, m.at.election
		if peer != m {
			l := newLink()
			m.links[peer] = l
			var err error
			if quorum, err = l.listen(local(peer.at.quorum)); err != nil {
				return nil, err
			}
			if election, err = l.listen(local(peer.at.election)); err != nil {
				return nil, err
			}
			host = m.cluster.launcher.loopback()
		}
		lines = append(lines, fmt.Sprintf("server.%d=%s:%d:%d", peer.id, host, quorum, election))
	}
	return lines, nil
}

// end ends the member for good. It reports errors without failing: the test is over.
func (m *Member) end() {
	for _, l := range m.links {
		l.close()
	}
	if m.server == nil {
		return
	}
	if err := m.server.end(); err != nil {
		m.cluster.tb.Errorf("ensemble: end of member %d: %v", m.id, err)
		return
	}
	m.at.leave()
}

// ID returns the member's number in the ensemble, from 1.
func (m *Member) ID() int { return m.id }

// ConnectString names the member's client port.
func (m *Member) ConnectString() string { return local(m.at.client) }

// SecureConnectString names the member's port for TLS, which [WithTLS] opens.
func (m *Member) SecureConnectString() string { return local(m.at.secure) }

// Stop kills the member, as kill -9 does. Its data stays for [Member.Start].
func (m *Member) Stop() {
	m.cluster.tb.Helper()
	m.command("kill")
}

// Start starts the member after [Member.Stop]. It does not wait for it to serve,
// which may take others: see [Cluster.WaitHealthy].
func (m *Member) Start() {
	m.cluster.tb.Helper()
	m.command("start")
}

// Pause freezes the member, as SIGSTOP does: its sockets stay, and are mute.
func (m *Member) Pause() {
	m.cluster.tb.Helper()
	m.command("pause")
}

// Resume lets a paused member run on.
func (m *Member) Resume() {
	m.cluster.tb.Helper()
	m.command("resume")
}

func (m *Member) command(verb string) {
	m.cluster.tb.Helper()
	m.cluster.check(fmt.Sprintf("%s member %d", verb, m.id), m.server.command(verb))
}

// Isolate cuts the member off from all others, in both directions, as a network
// does that loses every packet: nobody is told. Clients still reach it. A
// follower serves them until it has waited for its leader for syncLimit ticks,
// a leader until it has waited so for its followers.
func (m *Member) Isolate() {
	m.isolated = true
	m.adjustLinks()
}

// Rejoin ends what [Member.Isolate] began. What was on its way arrives now. Rejoin
// does not wait for the member to follow again: see [Cluster.WaitHealthy].
func (m *Member) Rejoin() {
	m.isolated = false
	m.adjustLinks()
}

// Delay makes whatever the member and the others send each other arrive d later,
// until it is called again. Zero ends it. Two delayed members are apart by the
// sum of their delays. From syncLimit ticks on it has the effect of
// [Member.Isolate].
func (m *Member) Delay(d time.Duration) {
	m.delay = d
	m.adjustLinks()
}

// adjustLinks brings the links between m and all others up to date, those that it
// dials and those by which it is dialled.
func (m *Member) adjustLinks() {
	for peer, dialled := range m.links {
		for _, l := range []*link{dialled, peer.links[m]} {
			l.adjust(m.isolated || peer.isolated, m.delay+peer.delay)
		}
	}
}
