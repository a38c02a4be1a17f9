/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ACPI power meters (ACPI 6.4, section 10.4) for a virtual machine. The test writes their readings
 * into the machine's memory at 0x20000000, which the kernel does not use, in little endian:
 *
 *	u32 mW of the first meter
 *	u32 mW of the second meter
 *	u32 errors: bit 0, bit 1: the power of the first, of the second is unknown; bit 4: the method of the
 *	    first fails
 *	u32, u32 the averaging intervals that the kernel has set, in ms; 0 means 1000
 */
DefinitionBlock ("", "SSDT", 2, "TEST", "PWRMETER", 1)
{
    Scope (\_SB)
    {
        OperationRegion (PWRM, SystemMemory, 0x20000000, 0x1000)
        Field (PWRM, DWordAcc, NoLock, Preserve)
        {
            MW0, 32, MW1, 32, ERRS, 32, INT0, 32, INT1, 32,
        }

        Device (PMT0)
        {
            Name (_HID, "ACPI000D")
            Name (_UID, 0)
            Name (TRIP, Package () { 0, 0 })
            Method (_PMC, 0) { Return (Package () {
                0x03,       /* measures; has trip points */
                0, 0,       /* mW, input */
                95000,      /* accuracy in thousandths of a percent */
                1000,       /* ms between samples */
                1000, 10000,/* minimum and maximum averaging interval, ms */
                0xFFFFFFFF, 0, 0, 0xFFFFFFFF,
                "QEMU-PM", "0001", "Grace Power Socket 0" }) }
            Method (_PMM, 0) {
                If (ERRS & 0x10) { Local0 = 0 Return (1 / Local0) }
                If (ERRS & 1) { Return (0xFFFFFFFF) }
                Return (MW0) }
            Method (_GAI, 0) { If (INT0 == 0) { Return (1000) } Return (INT0) }
            Method (_PAI, 1) { INT0 = Arg0 Return (0) }
            Method (_PTP, 2) { TRIP [0] = Arg0 TRIP [1] = Arg1 Return (0) }
            Method (_PMD, 0) { Return (Package () { \_SB }) }
        }

        Device (PMT1)
        {
            Name (_HID, "ACPI000D")
            Name (_UID, 1)
            Method (_PMC, 0) { Return (Package () {
                0x01, 0, 0, 95000, 1000, 1000, 10000, 0xFFFFFFFF, 0, 0, 0xFFFFFFFF,
                "QEMU-PM", "0002", "CPU Power Socket 0" }) }
            Method (_PMM, 0) {
                If (ERRS & 2) { Return (0xFFFFFFFF) }
                Return (MW1) }
            Method (_GAI, 0) { If (INT1 == 0) { Return (1000) } Return (INT1) }
            Method (_PAI, 1) { INT1 = Arg0 Return (0) }
            Method (_PMD, 0) { Return (Package () { \_SB }) }
        }
    }
}
