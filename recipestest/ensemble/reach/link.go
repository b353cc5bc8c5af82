// Package reach has what a process needs to reach the servers of package launch: their ports, the
// links that lead to them, and questions that they answer. Like package launch, it is for this
// project's own use.
package reach

import (
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// A Link is the network from one place to another that it dials. Its listeners replace the other
// place's ports. It can delay or stall the traffic in each direction. Connections that the other
// place dials go through another link.
type Link struct {
	wg sync.WaitGroup // every goroutine

	mu        sync.Mutex    // protects the fields below
	traffic   [2]Traffic    // by direction
	changed   chan struct{} // closed and replaced at each change of traffic
	listeners []net.Listener
	open      map[*net.TCPConn]side
	closed    chan struct{} // closed by Close
}

// Traffic says what happens to the bytes in one direction. The end of a connection counts as a
// byte. The zero Traffic lets everything pass at once.
type Traffic struct {
	// Stalled makes all bytes wait. Sockets stay open. While bytes of either direction are stalled,
	// new connections are reset.
	Stalled bool

	// Silent makes new connections wait too, instead of resetting them.
	Silent bool

	// Halved lets half of the next bytes pass, and makes all others wait.
	Halved bool

	// Delay is how long each byte takes. Jitter is how much longer it can take.
	Delay, Jitter time.Duration
}

type direction int

const (
	there direction = iota // from the side that dialled
	back
)

// A side is where one end of the link leads.
type side int

const (
	dialling side = iota // to the place that dialled
	dialled              // to the place that was dialled
)

// NewLink returns a link that lets everything pass.
func NewLink() *Link {
	return &Link{
		changed: make(chan struct{}),
		open:    make(map[*net.TCPConn]side),
		closed:  make(chan struct{}),
	}
}

// Listen listens at addr and forwards its connections to target. It returns the port.
func (l *Link) Listen(addr, target string) (port int, err error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return 0, err
	}

	l.mu.Lock()
	l.listeners = append(l.listeners, listener)
	l.mu.Unlock()

	l.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			l.wg.Go(func() { l.forward(conn.(*net.TCPConn), target) })
		}
	})
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// Set changes the traffic from the dialling side (sent) and back to it (returned). Bytes that were
// stalled and no longer are arrive now.
func (l *Link) Set(sent, returned Traffic) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.traffic = [2]Traffic{there: sent, back: returned}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Used reports whether there is a connection.
func (l *Link) Used() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open) > 0
}

// Reset resets all connections. Bytes that are under way are lost. Here and below, errors of ending
// a connection don't matter, because it may have ended by itself.
func (l *Link) Reset() { l.reset(dialling, dialled) }

// ResetDialling resets all connections for the place that dialled. For the other place, stalled
// connections stay open.
func (l *Link) ResetDialling() { l.reset(dialling) }

func (l *Link) reset(sides ...side) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, s := range l.open {
		if slices.Contains(sides, s) {
			// With linger 0, Close sends a reset.
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
}

// Close closes all listeners and connections and waits for the goroutines.
func (l *Link) Close() {
	l.mu.Lock()
	close(l.closed)
	for _, listener := range l.listeners {
		_ = listener.Close()
	}
	for c := range l.open {
		_ = c.Close()
	}
	// The goroutines take the lock when they end.
	l.mu.Unlock()
	l.wg.Wait()
}

// keep registers c, so that Reset and Close close it. If the link is already closed, keep closes c
// and reports false.
func (l *Link) keep(c *net.TCPConn, s side) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		_ = c.Close()
		return false
	default:
		l.open[c] = s
		return true
	}
}

func (l *Link) drop(c *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	_ = c.Close()
}

// forward joins a dialled connection with target until both directions have ended.
func (l *Link) forward(from *net.TCPConn, target string) {
	defer l.drop(from)
	if !l.keep(from, dialling) {
		return
	}

	to, err := l.dial(target)
	if err != nil {
		_ = from.SetLinger(0) // a reset is closest to a refused connection
		return
	}

	defer l.drop(to)
	if !l.keep(to, dialled) {
		return
	}

	var both sync.WaitGroup
	both.Go(func() { l.pump(to, from, there) })
	both.Go(func() { l.pump(from, to, back) })
	both.Wait()
}

// dial connects to target, unless the link is stalled. It retries for a second.
//
// A newly elected member begins to listen a moment after the others dial it. If it refused them
// they would try again. But they are connected to the link already, and a reset would make them
// give up and start another election, while the elected member waits initLimit ticks for them.
func (l *Link) dial(target string) (*net.TCPConn, error) {
	for deadline := time.Now().Add(time.Second); ; {
		l.mu.Lock()
		stalled := l.traffic[there].Stalled || l.traffic[back].Stalled
		silent := l.traffic[there].Silent || l.traffic[back].Silent
		changed := l.changed
		l.mu.Unlock()

		if stalled && !silent {
			return nil, errors.New("stalled")
		}
		if stalled {
			select {
			case <-changed:
				continue
			case <-l.closed:
				return nil, net.ErrClosed
			}
		}

		conn, err := net.Dial("tcp", target)
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
		if time.Now().After(deadline) {
			return nil, err
		}

		select {
		case <-time.After(10 * time.Millisecond):
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// A parcel is the result of one read (or half of it), and when it arrived.
type parcel struct {
	data   []byte
	sent   time.Time
	luck   float64 // its share of the jitter
	second bool    // it is the half that waits
}

// pump forwards bytes, and then the end of the stream, from src to dst.
func (l *Link) pump(dst, src *net.TCPConn, d direction) {
	parcels := make(chan parcel, 64)
	defer func() {
		for range parcels { // so that the reader doesn't block
		}
	}()

	// Read ahead, so that the delay of a parcel counts from its arrival.
	l.wg.Go(func() {
		defer close(parcels)
		for {
			data := make([]byte, 16<<10)
			n, err := src.Read(data)
			p := parcel{data: data[:n], sent: time.Now(), luck: rand.Float64()}
			if l.halves(d) && n > 0 {
				first := p
				first.data, p.data, p.second = p.data[:n/2], p.data[n/2:], true
				parcels <- first
			}
			parcels <- p
			if err != nil {
				return
			}
		}
	})

	for p := range parcels {
		if !l.await(p, d) {
			break
		}
		if _, err := dst.Write(p.data); err != nil {
			break
		}
	}

	// Even after a failed write: the sender must find out that nothing reads its bytes any more.
	_ = dst.CloseWrite()
	_ = src.CloseRead()
}

func (l *Link) halves(d direction) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.traffic[d].Halved
}

// await waits until a parcel may pass. If the link is closed it reports false.
func (l *Link) await(p parcel, d direction) bool {
	for {
		l.mu.Lock()
		t, changed := l.traffic[d], l.changed
		l.mu.Unlock()
		stalled := t.Stalled || t.Halved && p.second
		wait := time.Until(p.sent.Add(t.Delay + time.Duration(p.luck*float64(t.Jitter))))
		if !stalled && wait <= 0 {
			return true
		}

		// A stalled parcel waits only for a change.
		var due <-chan time.Time
		if !stalled {
			due = time.After(wait)
		}

		select {
		case <-due:
		case <-changed:
		case <-l.closed:
			return false
		}
	}
}
