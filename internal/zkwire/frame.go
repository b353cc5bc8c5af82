package zkwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrFrameSize is wrapped by the error about a frame whose length is negative or above the limit.
var ErrFrameSize = errors.New("bad frame length")

// lengthSize is the size of a frame's length.
const lengthSize = 4

// PayloadSize returns the length that stands at the head of a frame. It returns an error that wraps
// [ErrFrameSize] if the length is negative or above limit. head must have four bytes.
func PayloadSize(head []byte, limit int) (int, error) {
	n := int(int32(binary.BigEndian.Uint32(head)))
	if n < 0 || n > limit {
		return 0, fmt.Errorf("%w: %d", ErrFrameSize, n)
	}
	return n, nil
}

// ReadFrame reads one frame with a payload of at most limit bytes. It returns [io.EOF] if r ends
// before the frame begins, [io.ErrUnexpectedEOF] if r ends within the frame, and an error that
// wraps [ErrFrameSize] for a bad length. A long frame takes memory as its bytes arrive.
func ReadFrame(r io.Reader, limit int) ([]byte, error) {
	var head [lengthSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n, err := PayloadSize(head[:], limit)
	if err != nil {
		return nil, err
	}

	if n <= trusted {
		frame := make([]byte, lengthSize+n)
		copy(frame, head[:])
		if _, err := io.ReadFull(r, frame[lengthSize:]); err != nil {
			return nil, unexpected(err)
		}
		return frame, nil
	}

	var frame bytes.Buffer
	frame.Grow(lengthSize + trusted)
	frame.Write(head[:])
	if _, err = io.CopyN(&frame, r, int64(n)); err != nil {
		return nil, unexpected(err)
	}
	return frame.Bytes(), nil
}

// unexpected returns the error for an end of the input within a frame, and other errors as they
// are.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// trusted is how many bytes are allocated on the word of a length alone.
const trusted = 64 << 10

// CutFrame splits the first frame off b. It returns a nil frame if b does not have all of it yet,
// and an error that wraps [ErrFrameSize] for a bad length. The frame shares b's memory, and
// appending to it does not change rest.
func CutFrame(b []byte, limit int) (frame, rest []byte, err error) {
	if len(b) < lengthSize {
		return nil, b, nil
	}
	n, err := PayloadSize(b, limit)
	if err != nil {
		return nil, b, err
	}
	end := lengthSize + n
	if len(b) < end {
		return nil, b, nil
	}
	return b[:end:end], b[end:], nil
}

// SetLength makes the first four bytes of frame its length. Functions that append a frame leave
// them zero until its body is complete.
func SetLength(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-lengthSize))
	return frame
}
