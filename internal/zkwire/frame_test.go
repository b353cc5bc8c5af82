package zkwire

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// endless is a length that claims all that a frame can have.
var endless = []byte{0x7f, 0xff, 0xff, 0xff}

func frameOf(payload []byte) []byte { return SetLength(append(make([]byte, 4), payload...)) }

func TestFramesAreReadBackWholeHoweverTheyArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payloads := rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 100)).Draw(t, "payloads")
		var stream []byte
		for _, p := range payloads {
			stream = append(stream, frameOf(p)...)
		}

		r, rest := iotest.OneByteReader(bytes.NewReader(stream)), stream
		for _, p := range payloads {
			frame, err := ReadFrame(r, 100)
			require.NoError(t, err)
			require.Equal(t, frameOf(p), frame)

			frame, rest, err = CutFrame(rest, 100)
			require.NoError(t, err)
			require.Equal(t, frameOf(p), frame)
		}
		_, err := ReadFrame(r, 100)
		require.Equal(t, io.EOF, err)
		require.Empty(t, rest)
	})
}

func TestLongFrameIsReadWhole(t *testing.T) {
	frame := frameOf(bytes.Repeat([]byte("x"), 3*trusted+1))
	read, err := ReadFrame(bytes.NewReader(frame), 4*trusted)
	require.NoError(t, err)
	require.Equal(t, frame, read)
}

func TestTruncatedFrameIsAnUnexpectedEnd(t *testing.T) {
	frame := frameOf([]byte("payload"))
	for n := 1; n < len(frame); n++ {
		_, err := ReadFrame(bytes.NewReader(frame[:n]), 100)
		require.Equal(t, io.ErrUnexpectedEOF, err, n)

		cut, rest, err := CutFrame(frame[:n], 100)
		require.NoError(t, err)
		require.Nil(t, cut)
		require.Equal(t, frame[:n], rest)
	}
}

func TestReadFrameReturnsTheErrorOfItsReader(t *testing.T) {
	broken := errors.New("broken")
	_, err := ReadFrame(io.MultiReader(bytes.NewReader([]byte{0, 0, 0, 9, 1}), iotest.ErrReader(broken)), 100)
	require.ErrorIs(t, err, broken)
}

func TestBadLengthsAreRefused(t *testing.T) {
	for _, head := range [][]byte{{0, 0, 0, 101}, endless, {0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}} {
		_, err := PayloadSize(head, 100)
		require.ErrorIs(t, err, ErrFrameSize)
		_, err = ReadFrame(bytes.NewReader(head), 100)
		require.ErrorIs(t, err, ErrFrameSize)
		_, _, err = CutFrame(head, 100)
		require.ErrorIs(t, err, ErrFrameSize)
	}
}

func TestLengthAloneTakesLittleMemory(t *testing.T) {
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, err := ReadFrame(bytes.NewReader(endless), 1<<31-1)
			require.Equal(b, io.ErrUnexpectedEOF, err)
		}
	}).AllocedBytesPerOp()
	require.Less(t, allocated, int64(4*trusted))
}

func TestAppendingToACutFrameLeavesTheRestAlone(t *testing.T) {
	frame, rest, err := CutFrame(append(frameOf([]byte("a")), "rest"...), 100)
	require.NoError(t, err)
	_ = append(frame, "overwritten"...)
	require.Equal(t, "rest", string(rest))
}

// FuzzFrames cuts arbitrary bytes into frames in both ways, which must agree.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02ab\x00\x00\x00\x00"), uint16(10))
	f.Add([]byte("\x00\x00\x00\x05ab"), uint16(10))
	f.Add([]byte("\xff\xff\xff\xff"), uint16(10))
	f.Add([]byte("\x00\x00\x00\x0b"), uint16(10))
	f.Fuzz(func(t *testing.T, b []byte, limit uint16) {
		in, rest := bytes.NewReader(b), b
		for {
			read, failed := ReadFrame(in, int(limit))
			frame, left, err := CutFrame(rest, int(limit))
			switch {
			case errors.Is(failed, ErrFrameSize):
				require.ErrorIs(t, err, ErrFrameSize)
				return
			case failed != nil: // the bytes have ended
				require.NoError(t, err)
				require.Nil(t, frame)
				require.Equal(t, errors.Is(failed, io.EOF), len(rest) == 0)
				return
			}
			require.NoError(t, err)
			require.Equal(t, read, frame)
			require.LessOrEqual(t, len(frame), int(limit)+lengthSize)
			rest = left
			ParseRequestHeader(frame)
			ParseReplyHeader(frame)
		}
	})
}
