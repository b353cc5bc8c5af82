package reach

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// A Place is the set of addresses on which one server listens.
type Place struct {
	Bind             string // the address to listen on for clients
	Client, Secure   int    // the ports for clients
	Quorum, Election int    // the ports for other members
}

// NewPlace takes ports for a server, which listens on address bind.
func NewPlace(bind string) (Place, error) {
	at := Place{Bind: bind}
	for _, port := range []*int{&at.Client, &at.Secure, &at.Quorum, &at.Election} {
		var err error
		if *port, err = ports.take(); err != nil {
			return Place{}, err
		}
	}
	return at, nil
}

// Leave makes the ports available to other servers of this process.
func (at Place) Leave() { ports.giveBack(at.Client, at.Secure, at.Quorum, at.Election) }

// Local returns the address of a port on the loopback interface.
func Local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Ports of servers come in blocks. The blocks are below the range from which the system takes ports
// for outgoing connections.
const (
	firstPort = 10000
	blockSize = 64
	blocks    = 340
)

var ports portPool

// A portPool allocates ports. A port on which no process listens can still belong to a server: a
// member listens for followers only while it leads, and a stopped member doesn't listen at all. So
// a process owns whole blocks of ports, and listens on the first port of each block until it ends.
type portPool struct {
	mu     sync.Mutex // protects the fields below
	free   []int
	guards []net.Listener // one for each block that this process owns
}

func (p *portPool) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.free) > 0 {
			port := p.free[0]
			p.free = p.free[1:]
			// A process that knows nothing of the blocks can use the port.
			if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
				return port, l.Close()
			}
		}
		if err := p.claimBlock(); err != nil {
			return 0, err
		}
	}
}

func (p *portPool) giveBack(ports ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, ports...)
}

func (p *portPool) claimBlock() error {
	// Try them in random order, so that processes that start together rarely collide.
	for _, block := range rand.Perm(blocks) {
		base := firstPort + block*blockSize
		guard, err := net.Listen("tcp", Local(base))
		if err != nil {
			continue
		}
		p.guards = append(p.guards, guard)
		for port := base + 1; port < base+blockSize; port++ {
			p.free = append(p.free, port)
		}
		return nil
	}

	return errors.New("every block of ports is in use")
}
