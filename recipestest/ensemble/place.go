package ensemble

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// A place is the set of addresses on which one server listens.
type place struct {
	bind             string // the address to listen on for clients
	client, secure   int    // the ports for clients
	quorum, election int    // the ports for other members
}

func newPlace(bind string) (place, error) {
	at := place{bind: bind}
	for _, port := range []*int{&at.client, &at.secure, &at.quorum, &at.election} {
		var err error
		if *port, err = ports.take(); err != nil {
			return place{}, err
		}
	}
	return at, nil
}

// leave makes the ports available to other servers of this process.
func (at place) leave() { ports.giveBack(at.client, at.secure, at.quorum, at.election) }

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// The ports of servers come in blocks, below the range from which the system takes the ports of
// outgoing connections.
const (
	firstPort = 10000
	blockSize = 64
	blocks    = 340
)

var ports portPool

// A portPool allocates ports. A port on which no process listens may still belong to a server. A
// member listens for followers only while it leads, and a stopped member does not listen at all. So
// a process owns whole blocks of ports, and listens on the first port of each until it ends.
type portPool struct {
	mu     sync.Mutex // guards the fields below
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
	for _, block := range rand.Perm(blocks) {
		base := firstPort + block*blockSize
		guard, err := net.Listen("tcp", local(base))
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
