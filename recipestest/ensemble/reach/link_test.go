package reach_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// linked returns a link, and both sides of a connection over it.
func linked(t *testing.T) (_ *reach.Link, addr string, dialled, accepted net.Conn) {
	t.Helper()
	target, err := net.Listen("tcp", reach.Local(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, target.Close()) })

	link := reach.NewLink()
	t.Cleanup(link.Close)
	port, err := link.Listen(reach.Local(0), target.Addr().String())
	require.NoError(t, err)

	addr = reach.Local(port)
	dialled = dial(t, addr)
	accepted, err = target.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = accepted.Close() })
	return link, addr, dialled, accepted
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// passes expects that text arrives, and nothing else before it.
func passes(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(from, text)
	require.NoError(t, err)
	arrives(t, to, text)
}

func arrives(t *testing.T, to net.Conn, text string) {
	t.Helper()
	require.NoError(t, to.SetReadDeadline(time.Time{}))
	got := make([]byte, len(text))
	_, err := io.ReadFull(to, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// nothingArrives expects no bytes for a moment. It cannot fail because the machine is slow.
func nothingArrives(t *testing.T, to net.Conn) {
	t.Helper()
	require.NoError(t, to.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := to.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorContains(t, err, "timeout")
}

func TestStallOfOneDirectionLeavesTheOther(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	link.Set(reach.Traffic{Stalled: true}, reach.Traffic{})
	_, err := io.WriteString(dialled, "late")
	require.NoError(t, err)
	passes(t, accepted, dialled, "back")
	nothingArrives(t, accepted)

	link.Set(reach.Traffic{}, reach.Traffic{Stalled: true})
	arrives(t, accepted, "late")
	_, err = io.WriteString(accepted, "later")
	require.NoError(t, err)
	nothingArrives(t, dialled)
}

func TestHalvedTrafficStopsInTheMiddle(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	passes(t, dialled, accepted, "whole")
	link.Set(reach.Traffic{Halved: true}, reach.Traffic{})
	_, err := io.WriteString(dialled, "firstsecond")
	require.NoError(t, err)
	arrives(t, accepted, "first")
	nothingArrives(t, accepted)

	link.Set(reach.Traffic{}, reach.Traffic{})
	arrives(t, accepted, "second")
}

func TestNewConnectionsOfAStalledLinkAreReset(t *testing.T) {
	link, addr, _, _ := linked(t)
	link.Set(reach.Traffic{}, reach.Traffic{Stalled: true})
	conn, err := net.Dial("tcp", addr) // the reset may come before it returns
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	require.ErrorContains(t, err, "reset")
}

func TestNewConnectionsOfASilentLinkWait(t *testing.T) {
	link, addr, _, _ := linked(t)
	link.Set(reach.Traffic{Stalled: true, Silent: true}, reach.Traffic{})
	nothingArrives(t, dial(t, addr))
}

func TestResetIsAResetOnBothSides(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	passes(t, dialled, accepted, "before")
	link.Reset()
	for _, conn := range []net.Conn{dialled, accepted} {
		_, err := conn.Read(make([]byte, 1))
		require.ErrorContains(t, err, "reset")
	}
}

func TestResetOfTheDiallingSideLeavesTheOtherOpen(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	passes(t, dialled, accepted, "before")
	link.Set(reach.Traffic{Stalled: true}, reach.Traffic{Stalled: true})
	link.ResetDialling()
	_, err := dialled.Read(make([]byte, 1))
	require.ErrorContains(t, err, "reset")
	_, err = io.WriteString(accepted, "still open")
	require.NoError(t, err)
	nothingArrives(t, accepted)
}

func TestDelayedBytesTakeAsLong(t *testing.T) {
	link, _, dialled, accepted := linked(t)
	const delay = 50 * time.Millisecond
	link.Set(reach.Traffic{Delay: delay, Jitter: delay}, reach.Traffic{})
	begin := time.Now()
	passes(t, dialled, accepted, "slow")
	require.GreaterOrEqual(t, time.Since(begin), delay)
}
