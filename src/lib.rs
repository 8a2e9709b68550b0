//! uringlog
