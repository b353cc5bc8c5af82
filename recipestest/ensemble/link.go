package ensemble

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A link is the network between one member and another that it dials: listeners
// that stand for the other's quorum and election ports. What they carry can be
// held up. The connections that the other dials go through a link of its own.
type link struct {
	wg sync.WaitGroup // every goroutine

	mu      sync.Mutex // guards what follows
	stalled bool
	delay   time.Duration
	changed chan struct{} // closed and replaced at each change of the two
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

// listen forwards what is dialled to the returned port of the loopback to target.
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

// adjust holds up every byte, in both directions, for delay, or if stalled until
// it is called again. Sockets stay; that one is closed is held up like a byte. New
// connections are reset while the link is stalled.
func (l *link) adjust(stalled bool, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled, l.delay = stalled, delay
	close(l.changed)
	l.changed = make(chan struct{})
}

// close ends everything and waits for it.
func (l *link) close() {
	l.mu.Lock()
	close(l.closed)
	for c := range l.open {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// keep has close close c. It reports false, having closed c, when that is past.
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
		_ = dialled.SetLinger(0) // a reset: the nearest thing to a refused connection
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

// dial connects to target, unless the link is stalled.
//
// It is patient: a member that has just been elected listens a moment after the
// others call it. Refused, they would try again, but they are not refused, they
// are connected to us; and reset, they would give up and vote anew, while the one
// that they voted for waits initLimit ticks for them.
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

// A parcel is what one read returned, with its time.
type parcel struct {
	data []byte
	sent time.Time
}

// pump carries bytes, and then their end, from src to dst.
func (l *link) pump(dst, src *net.TCPConn) {
	parcels := make(chan parcel, 64)
	defer func() {
		for range parcels { // let the reader end
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
		if !l.hold(p.sent) {
			break
		}
		if _, err := dst.Write(p.data); err != nil {
			break
		}
	}
	// Also after an error: the sender has to hear that nobody listens.
	_ = dst.CloseWrite()
	_ = src.CloseRead()
}

// hold waits as long as what was sent then has to. It reports false when the link
// is closed.
func (l *link) hold(sent time.Time) bool {
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
