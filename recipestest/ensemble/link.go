package ensemble

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A link is the network from one member to another that it dials. Its listeners take the place of
// the other's quorum and election ports. It can delay or stall the traffic. The connections in
// which the other member dials go through a link of their own.
type link struct {
	wg sync.WaitGroup // every goroutine

	mu      sync.Mutex // guards the fields below
	stalled bool
	delay   time.Duration
	changed chan struct{} // closed and replaced at each change of stalled or delay
	open    map[io.Closer]struct{}
	closed  chan struct{} // closed by close
}

func newLink() *link {
	return &link{
		changed: make(chan struct{}),
		open:    make(map[io.Closer]struct{}),
		closed:  make(chan struct{}),
	}
}

// listen opens a port on the loopback interface and forwards its connections to target.
func (l *link) listen(target string) (port int, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	l.keep(listener)
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

// adjust delays every byte by delay, in both directions. If stalled, every byte waits until a later
// call. Existing sockets stay open, and closing one is delayed like a byte. New connections are
// reset while the link is stalled.
func (l *link) adjust(stalled bool, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled, l.delay = stalled, delay
	close(l.changed)
	l.changed = make(chan struct{})
}

// close closes all listeners and connections and waits for the goroutines.
func (l *link) close() {
	l.mu.Lock()
	close(l.closed)
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// keep registers c, so that close closes it. If the link is closed already, keep closes c and
// reports false.
func (l *link) keep(c io.Closer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		_ = c.Close()
		return false
	default:
		l.open[c] = struct{}{}
		return true
	}
}

func (l *link) drop(c io.Closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	_ = c.Close()
}

// forward joins a dialled connection with target until both directions have ended.
func (l *link) forward(dialled *net.TCPConn, target string) {
	defer l.drop(dialled)
	if !l.keep(dialled) {
		return
	}

	accepted, err := l.dial(target)
	if err != nil {
		_ = dialled.SetLinger(0) // a reset is the closest to a refused connection
		return
	}

	defer l.drop(accepted)
	if !l.keep(accepted) {
		return
	}

	var both sync.WaitGroup
	both.Go(func() { l.pump(accepted, dialled) })
	both.Go(func() { l.pump(dialled, accepted) })
	both.Wait()
}

// dial connects to target, unless the link is stalled. It retries for a second.
//
// A member that has just been elected begins to listen a moment after the others dial it. A refused
// member would try again, but it is connected to the link already. A reset makes it give up and
// start another election, while the elected member waits initLimit ticks for it.
func (l *link) dial(target string) (*net.TCPConn, error) {
	for deadline := time.Now().Add(time.Second); ; {
		l.mu.Lock()
		stalled := l.stalled
		l.mu.Unlock()
		if stalled {
			return nil, errors.New("stalled")
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

// A parcel is the result of one read and the time at which it arrived.
type parcel struct {
	data []byte
	sent time.Time
}

// pump forwards bytes, and then the end of the stream, from src to dst.
func (l *link) pump(dst, src *net.TCPConn) {
	parcels := make(chan parcel, 64)
	defer func() {
		for range parcels { // so that the reader does not block
		}
	}()

	l.wg.Go(func() {
		defer close(parcels)
		for {
			data := make([]byte, 16<<10)
			n, err := src.Read(data)
			parcels <- parcel{data[:n], time.Now()}
			if err != nil {
				return
			}
		}
	})

	for p := range parcels {
		if !l.await(p.sent) {
			break
		}
		if _, err := dst.Write(p.data); err != nil {
			break
		}
	}

	// After a failed write too: the sender must learn that its bytes are no longer read.
	_ = dst.CloseWrite()
	_ = src.CloseRead()
}

// await waits until bytes that arrived at sent may be forwarded. It reports false if the link is
// closed.
func (l *link) await(sent time.Time) bool {
	for {
		l.mu.Lock()
		stalled, wait, changed := l.stalled, time.Until(sent.Add(l.delay)), l.changed
		l.mu.Unlock()
		if !stalled && wait <= 0 {
			return true
		}

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
